#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sluice/tls_options.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/grpc_wire/message_buffers.h"
#include "lib/link/callback_memory.h"
#include "lib/link/connection.h"
#include "lib/link/link_metrics.h"
#include "lib/link/scheduled.h"
#include "lib/link/scheduled_stream.h"
#include "lib/link/worker.h"
#include "lib/link/worker_table.h"
#include "lib/net/executor.h"
#include "lib/net/timer_queue.h"
#include "lib/scheduling/link_schedule.h"

namespace sluice {

// All objects of one link that live on its thread: the schedule, the calls, the workers and their connections. It
// carries out the actions of the schedule, and reports their results to the schedule. It runs on a given Executor, so
// the same code runs in virtual time. There is one for each Link, used on the link's thread only.
class LinkLoop final : private FlushQueue {
 public:
  // The executor and the metrics must outlive the loop.
  LinkLoop(Executor& executor, const ScheduleOptions& schedule, LinkMetrics& metrics);
  ~LinkLoop() override;
  LinkLoop(const LinkLoop&) = delete;
  LinkLoop& operator=(const LinkLoop&) = delete;

  // Returns the worker at this target. While a user holds the worker, the same arguments return the same worker. The
  // loop destroys it at the end of the turn in which its last user releases it. A user may therefore release it within
  // any event. Its certificate must have the name `server_name`, or, if that is empty, the name of the TLS options or
  // of the target.
  std::shared_ptr<Worker> FindWorker(const std::string& target, std::shared_ptr<TlsContext> tls,
                                     const std::string& server_name = "");
  // Returns the TLS context for these options: the same context for the same options. Errors as TlsContext::Create.
  absl::StatusOr<std::shared_ptr<TlsContext>> FindTls(const TlsOptions& options);

  // Takes the stream of a call. Submit or Add must follow at once; the user gets no event before.
  ScheduledStream& Take(std::unique_ptr<ScheduledStream> call);
  // As in LinkSchedule. After an error the calls are gone, without an OnStreamOver. `block` is set before the first
  // event.
  absl::Status Submit(absl::Span<ScheduledStream* const> calls, TimePoint deadline, BlockId& block);
  absl::Status Add(BlockId block, ScheduledStream& call);
  // The user still gets OnStreamOver, with `why`, within this call or later.
  void CancelCall(ScheduledStream& call, const absl::Status& why);

  // Runs `task` at the end of this turn, before the output of the turn is written and its garbage freed.
  void AtEndOfTurn(std::function<void()> task) { at_end_.push_back(std::move(task)); }
  // Writes the output of this turn now if many connections have some. The workers then process the first requests of a
  // fan-out while its other requests are made. Do not call it within an event of a connection.
  void FlushEarly();

  // For the calls, the workers and their connections.
  void Unsend(ScheduledStream& call);  // the call is not sent, until Unpark
  void Park(ScheduledStream& call);    // as Unsend; its worker resumes it
  void Unpark(ScheduledStream& call);
  void HeadersCame(CallId id, size_t wire_bytes) { schedule_.OnHeaders(id, static_cast<int64_t>(wire_bytes)); }
  void Ready(CallId id, int64_t remaining_bytes, int64_t withheld_bytes);
  void Received(ScheduledStream& call, int64_t bytes);
  void Unwanted(CallId id);                         // its owner has abandoned it, and its reset waits
  void Finish(ScheduledStream& call, CallEnd end);  // destroys the call at the end of the turn
  void Forget(ScheduledStream& call);               // the same for a call that the schedule has already ended

  // Submits bytes that do not belong to a ScheduledStream, as a block of their own: the handshake of a connection,
  // ahead of all waiting calls, or a call of other code. As in LinkSchedule; `block` is set before the first event.
  // kAheadRetry: a handshake after a failed attempt.
  enum class Place { kQueued, kAhead, kAheadRetry };
  absl::Status SubmitOther(Scheduled& other, int64_t response_bytes, TimePoint deadline, Place place, BlockId& block);
  void Cancel(BlockId block);  // a waiting call gets EndUnsent at once, a sent call gets Abort
  void Finish(CallId id, CallEnd end);

  // The schedule drops its state of this worker. A different worker may get the number.
  void ForgetWorker(uint32_t schedule_id) { schedule_.ForgetWorker(schedule_id); }

  void Bury(std::unique_ptr<Connection> connection);  // destroys it at the end of the turn
  // Options of future connections.
  Http2Session::Options& session_options() { return session_options_; }

  // The budget and the state of the schedule.
  absl::Status SetBudget(int64_t budget_bytes);
  absl::Status Reconfigure(ScheduleOptions options);
  absl::Status SetLease(const BudgetLease& lease);
  const LinkSchedule& schedule() const { return schedule_; }
  // Sets a function that gets the demand once in each turn in which it may have changed. May be null.
  void SetDemandWatcher(std::function<void(const LinkDemand&)> watcher) { demand_watcher_ = std::move(watcher); }
  LinkDemand Demand() const { return schedule_.Demand(now()); }
  // The size of the block that was submitted last, for the plan that the gauges show.
  int64_t last_block_calls() const { return last_block_calls_; }
  int64_t last_block_response_bytes() const { return last_block_response_bytes_; }

  // The connections of the workers, one slice after the other. A worker that stays is in exactly one slice.
  using WorkerKey = std::tuple<std::string, std::string, TlsContext*>;  // target, server name, TLS
  struct TcpSlice {
    std::vector<WorkerTable::Socket> sockets;  // of open connections
    std::optional<WorkerKey> last;             // empty behind the last slice
  };
  TcpSlice TcpSockets(const std::optional<WorkerKey>& after, size_t workers) const;
  TimePoint now() const { return executor_.Now(); }
  Executor& executor() { return executor_; }
  FlushQueue& flushes() { return *this; }
  TimerQueue& timers() { return timers_; }
  WorkerTable& workers() { return workers_; }
  LinkMetrics& metrics() { return metrics_; }
  // Users return the memory of messages here.
  MessageBuffers& message_buffers() { return message_buffers_; }
  CallbackMemory& callback_memory() { return callback_memory_; }
  // Sets the bound of callback_memory(). Default: see CallbackMemory::DefaultBytes.
  void SetCallbackMemory(int64_t bytes) { callback_memory_.SetBound(bytes); }

 private:
  template <class Event>
  void Drive(Event event);
  template <class Event>
  absl::Status Configure(Event event);  // an event that may change the budget or the profile
  void Apply(const Action& action);
  void EndTurn();
  void FreeGarbage();
  void UseTls();
  void SetPatience();
  void FlushQueued();
  void FlushLater(Flushable& connection) override;
  void Forget(Flushable& connection) override;

  Executor& executor_;
  LinkMetrics& metrics_;
  MessageBuffers message_buffers_;
  Http2Session::Options session_options_;
  TimerQueue timers_;
  CallbackMemory callback_memory_;
  WorkerTable workers_;
  LinkSchedule schedule_;
  std::vector<Action> actions_;  // not carried out yet
  bool applying_ = false;
  bool schedule_changed_ = false;
  bool uses_tls_ = false;  // the link has had a worker with TLS

  std::vector<std::unique_ptr<ScheduledStream>> calls_;
  std::vector<Flushable*> to_flush_;
  size_t next_to_flush_ = 0;  // entries before it have been flushed
  std::vector<std::function<void()>> at_end_;
  // Destroyed at the end of the turn, because their functions may still be on the stack. An action for the handshake of
  // a worker may also be pending when its last user releases the worker.
  std::vector<std::unique_ptr<ScheduledStream>> ended_calls_;
  std::vector<std::unique_ptr<Connection>> buried_;
  std::vector<std::unique_ptr<Worker>> unused_workers_;

  std::map<WorkerKey, std::weak_ptr<Worker>> workers_by_target_;
  size_t sweep_workers_at_ = 0;  // number of entries, some for destroyed workers, at which to remove those
  std::vector<std::weak_ptr<TlsContext>> tls_contexts_;

  std::function<void(const LinkDemand&)> demand_watcher_;
  int64_t last_block_calls_ = 0;
  int64_t last_block_response_bytes_ = 0;
};

}  // namespace sluice
