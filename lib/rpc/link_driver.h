#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/steady_timer.hpp>
#include <grpcpp/completion_queue.h>

#include "sluice/link_schedule.h"

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "lib/rpc/completion.h"
#include "lib/telemetry/aggregator_metrics.h"
#include "lib/telemetry/io_thread.h"
#include "lib/telemetry/worker_table.h"

namespace sluice {

// A call that the schedule lets go. Its address is the tag of its CallRequest. It lives until it has ended; after an
// Abort it still ends, through LinkDriver::Finish.
class ScheduledCall {
 public:
  virtual ~ScheduledCall() = default;
  virtual void Send(CallId id, bool held) = 0;      // held: its answer waits at the worker for a Grant
  virtual void Grant() = 0;                         // after LinkDriver::Ready
  virtual void EndUnsent(absl::Status reason) = 0;  // ended; Finish must not follow
  virtual void Abort() = 0;
  // Keeps the call alive while a Grant or an Abort is on its way to it: another thread may end it meanwhile.
  virtual std::shared_ptr<void> Hold() = 0;

  uint64_t tag() { return reinterpret_cast<uintptr_t>(this); }
};

// Drives one LinkSchedule: the only lock around it, its clock, its timer, and the threads that poll gRPC. One a Link.
// Thread-safe. Actions are applied after the lock is released, on the thread that brought the event: a completion
// sends the next request without a thread hop. Two threads may therefore apply their actions in either order; a call
// that is aborted before it is sent is sent cancelled, which gRPC ends at once.
class LinkDriver {
 public:
  LinkDriver(LinkSchedule schedule, AggregatorMetrics& metrics, int completion_threads);
  ~LinkDriver();  // waits until every call has ended

  LinkDriver(const LinkDriver&) = delete;
  LinkDriver& operator=(const LinkDriver&) = delete;

  // As LinkSchedule's. `block` and `id` are set before the first action is applied, since a call may end before Submit
  // returns.
  absl::Status Submit(absl::Span<const CallRequest> calls, TimePoint deadline, BlockId& block);
  absl::Status Add(BlockId block, CallRequest call, CallId& id);
  void Ready(CallId call, std::optional<int64_t> response_bytes);
  void Progress(CallId call, int64_t remaining_bytes);
  void Finish(CallId call, CallEnd end);
  void Cancel(BlockId block);
  void CancelCall(CallId call);
  absl::Status SetBudget(int64_t budget_bytes);
  absl::Status Reconfigure(const LinkSchedule::Options& options);

  ScheduleState State() const;
  AggregatorGauges Gauges() const;  // the plan is that of the block that was submitted last
  LinkSchedule::Options options() const;
  Discipline discipline() const { return discipline_; }
  AggregatorMetrics& metrics() { return metrics_; }
  WorkerTable& workers() { return workers_; }
  grpc::CompletionQueue& completion_queue() { return queue_; }
  boost::asio::io_context& io_context() { return io_thread_.context(); }

 private:
  using Event = absl::FunctionRef<absl::Status(LinkSchedule&, TimePoint now, std::vector<Action>&)>;

  absl::Status Drive(Event event);
  void RememberForPlan(absl::Span<const CallRequest> calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Apply(const std::vector<Action>& actions);
  bool WakeNoLaterThan(TimePoint time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ArmTimer();
  void OnTimer();
  void PollCompletions();
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Discipline discipline_;
  AggregatorMetrics& metrics_;
  WorkerTable workers_;

  mutable absl::Mutex mutex_;
  LinkSchedule schedule_ ABSL_GUARDED_BY(mutex_);
  int64_t last_block_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t last_block_response_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of its largest response
  TimePoint armed_for_ ABSL_GUARDED_BY(mutex_) = TimePoint::max();

  IoThread io_thread_;
  boost::asio::steady_timer timer_;  // used on the io thread only

  grpc::CompletionQueue queue_;
  std::vector<std::thread> pollers_;
};

}  // namespace sluice
