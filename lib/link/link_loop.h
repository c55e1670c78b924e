#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "sluice/outlier_detection.h"

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/grpc_wire/message_buffers.h"
#include "lib/link/callback_memory.h"
#include "lib/link/connection.h"
#include "lib/link/flush_queue.h"
#include "lib/link/link_metrics.h"
#include "lib/link/queue_timeout.h"
#include "lib/link/schedule_run.h"
#include "lib/link/scheduled_stream.h"
#include "lib/link/worker_pool.h"
#include "lib/link/worker_table.h"
#include "lib/net/executor.h"
#include "lib/net/timer_queue.h"
#include "lib/scheduling/link_schedule.h"

namespace sluice {

// The turns of one link, and all of its objects that live on its thread: the schedule, the calls, the workers and their
// connections. It runs on a given Executor, so the same code runs in virtual time. There is one for each Link, used on
// the link's thread only.
class LinkLoop {
 public:
  // The executor and the metrics must outlive the loop.
  LinkLoop(Executor& executor, const ScheduleOptions& schedule, LinkMetrics& metrics);
  ~LinkLoop();
  LinkLoop(const LinkLoop&) = delete;
  LinkLoop& operator=(const LinkLoop&) = delete;

  // Takes the stream of a call. Submit or Add must follow at once; the user gets no event before.
  ScheduledStream& Take(std::unique_ptr<ScheduledStream> call);
  // As in LinkSchedule. After an error the calls are gone, without an OnStreamOver. `block` is set before the first
  // event.
  absl::Status Submit(absl::Span<ScheduledStream* const> calls, TimePoint deadline, BlockId& block,
                      size_t traffic_class = 0);
  absl::Status Add(BlockId block, ScheduledStream& call);
  // The user still gets OnStreamOver, with `why`, within this call or later.
  void CancelCall(ScheduledStream& call, const absl::Status& why);

  // Ends a call that was not sent, because the queue has no place for it.
  void Refuse(ScheduledStream& call, QueueRefusal reason, const absl::Status& why);

  // For the calls.
  void Park(ScheduledStream& call);  // it was not sent; its worker resumes it
  // Its worker can take calls again, or its request can begin.
  void Resume(ScheduledStream& call);
  void Finish(ScheduledStream& call, CallEnd end);  // destroys the call at the end of the turn
  void Forget(ScheduledStream& call);               // the same for a call that the schedule has already ended

  // A number for ScheduledStream::Options::client.
  uint64_t NewClient() { return ++clients_; }
  // Runs `task` at the end of this turn, before the output of the turn is written and its garbage freed.
  void AtEndOfTurn(std::function<void()> task) { at_end_.push_back(std::move(task)); }
  void Bury(std::unique_ptr<Connection> connection);  // destroys it at the end of the turn

  // Change the budget or the profile. The patience of callback_memory() follows them.
  absl::Status SetBudget(int64_t budget_bytes);
  absl::Status Reconfigure(ScheduleOptions options);
  absl::Status SetLease(const BudgetLease& lease);

  const LinkSchedule& schedule() const { return schedule_run_.schedule(); }
  ScheduleRun& schedule_run() { return schedule_run_; }
  WorkerPool& workers() { return workers_; }
  WorkerTable& worker_table() { return worker_table_; }
  FlushQueue& flushes() { return flushes_; }
  TimePoint now() const { return executor_.Now(); }
  Executor& executor() { return executor_; }
  TimerQueue& timers() { return timers_; }
  LinkMetrics& metrics() { return metrics_; }
  // Users return the memory of messages here.
  MessageBuffers& message_buffers() { return message_buffers_; }
  // Its default bound is CallbackMemory::DefaultBytes.
  CallbackMemory& callback_memory() { return callback_memory_; }
  // When workers are ejected.
  const OutlierDetection& outlier_detection() const { return outlier_detection_; }
  void set_outlier_detection(const OutlierDetection& options) { outlier_detection_ = options; }

 private:
  void OnQueued(ScheduledStream& call, bool parked);
  void EndTurn();
  void FreeGarbage();
  void SetPatience();

  Executor& executor_;
  LinkMetrics& metrics_;
  MessageBuffers message_buffers_;
  TimerQueue timers_;
  CallbackMemory callback_memory_;
  OutlierDetection outlier_detection_;
  WorkerTable worker_table_;
  ScheduleRun schedule_run_;
  QueueTimeout queue_timeout_{*this};
  FlushQueue flushes_;
  WorkerPool workers_;

  std::vector<std::unique_ptr<ScheduledStream>> calls_;
  uint64_t clients_ = 0;
  std::vector<std::function<void()>> at_end_;
  // Destroyed at the end of the turn, because their functions may still be on the stack.
  std::vector<std::unique_ptr<ScheduledStream>> ended_calls_;
  std::vector<std::unique_ptr<Connection>> buried_;
};

}  // namespace sluice
