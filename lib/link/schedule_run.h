#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/link/link_metrics.h"
#include "lib/link/queued_bytes.h"
#include "lib/link/scheduled.h"
#include "lib/net/executor.h"
#include "lib/scheduling/breaches.h"
#include "lib/scheduling/link_schedule.h"

namespace sluice {

// Runs the schedule of one link: passes it events with their time, and carries out its actions on the Scheduled objects
// that it admits. There is one for each LinkLoop, used on the link's thread only.
//
// An event changes only the schedule, and is quick. Its actions are carried out afterwards, in order. An action may
// cause further events, whose actions come after all others.
class ScheduleRun {
 public:
  // The executor and the metrics must outlive it.
  ScheduleRun(Executor& executor, const ScheduleOptions& options, LinkMetrics& metrics);
  ScheduleRun(const ScheduleRun&) = delete;
  ScheduleRun& operator=(const ScheduleRun&) = delete;

  const LinkSchedule& schedule() const { return schedule_; }

  // The events, as in LinkSchedule. The tag of a request must be Scheduled::tag(). The ids of the Scheduled objects,
  // and `block`, are set before the first action.
  absl::Status Submit(absl::Span<const CallRequest> calls, TimePoint deadline, BlockId& block,
                      size_t traffic_class = 0);
  absl::Status SubmitAhead(const CallRequest& call, TimePoint deadline, BlockId& block);
  absl::Status Add(BlockId block, const CallRequest& call);
  void Unpark(CallId call);
  void OnUnsent(CallId call);
  void OnHeaders(CallId call, int64_t wire_bytes) { schedule_.OnHeaders(call, wire_bytes); }
  void OnReady(CallId call, int64_t remaining_bytes, int64_t withheld_bytes);
  void OnReceived(CallId call, int64_t bytes);
  void OnUnwanted(CallId call);
  void OnFinished(CallId call, CallEnd end);
  void Cancel(BlockId block);
  void CancelCall(CallId call);
  void ForgetWorker(uint32_t worker) { schedule_.ForgetWorker(worker); }
  void OnSilence(absl::Span<const uint32_t> workers) { schedule_.OnSilence(workers); }
  absl::Status SetBudget(int64_t budget_bytes);
  absl::Status SetLease(const BudgetLease& lease);
  absl::Status Reconfigure(const ScheduleOptions& options);

  void OnTimer(TimePoint now);  // does nothing before LinkSchedule::NextTimer
  // Reports the demand to the watcher if it may have changed since the last report.
  void ReportDemand(TimePoint now);
  // Sets a function that gets the demand once in each turn in which it may have changed. May be null.
  void SetDemandWatcher(std::function<void(const LinkDemand&)> watcher) { demand_watcher_ = std::move(watcher); }
  // Counts the breaches of a state machine of the link, and reports them to the watcher: of the schedule after each
  // event, and of fan-outs when their owners call it.
  void ReportBreaches(Breaches& breaches);
  void SetBreachWatcher(std::function<void(const InvariantBreach&)> watcher) { breach_watcher_ = std::move(watcher); }
  // Further actions are not carried out.
  void Stop() { applying_ = true; }

  // The size of the block that was submitted last, for the plan that the gauges show.
  struct BlockSize {
    int64_t calls = 0;
    int64_t response_bytes = 0;  // the largest
  };
  const BlockSize& last_block() const { return last_block_; }
  // The requests of the calls that wait in the schedule.
  QueuedBytes& queued_bytes() { return queued_bytes_; }

 private:
  template <class Event>
  void Drive(Event event);
  template <class Event>
  absl::Status Try(Event event);  // Drive, and the status that the event returns
  void Apply(const Action& action);

  Executor& executor_;
  LinkMetrics& metrics_;
  LinkSchedule schedule_;
  std::vector<Action> actions_;  // not carried out yet
  bool applying_ = false;
  bool changed_ = false;  // since the last ReportDemand
  std::function<void(const LinkDemand&)> demand_watcher_;
  std::function<void(const InvariantBreach&)> breach_watcher_;
  BlockSize last_block_;
  QueuedBytes queued_bytes_;
};

}  // namespace sluice
