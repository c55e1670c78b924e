#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "sluice/worker_fault.h"

#include "absl/status/status.h"
#include "lib/link/link_loop.h"
#include "lib/link/link_metrics.h"
#include "lib/link/worker_faults.h"
#include "lib/scheduling/budget_control.h"
#include "lib/scheduling/profile_check.h"

namespace sluice {

// Looks at the connections of one link while calls are made over it. It counts losses, keeps the budget small enough to
// avoid them, tracks the workers at fault, and compares the link with its profile. There is one for each Link, used on
// the link's thread only.
class LinkMonitor {
 public:
  using OnBudgetChange = std::function<void(const BudgetChange& change)>;

  using OnWorkerFaults = std::function<void(const std::vector<WorkerFaultChange>& changes)>;

  using OnProfileMismatch = std::function<void(const ProfileMismatch& mismatch)>;

  // The functions are called on the link's thread and may be null. The loop must outlive the monitor.
  LinkMonitor(LinkLoop& loop, const BudgetBounds& bounds, bool watch, OnBudgetChange on_change,
              OnWorkerFaults on_faults, OnProfileMismatch on_mismatch = nullptr);
  ~LinkMonitor();
  LinkMonitor(const LinkMonitor&) = delete;
  LinkMonitor& operator=(const LinkMonitor&) = delete;

  // Fixes the budget.
  absl::Status FixBudget(int64_t budget_bytes);
  // Sets new bounds. The budget starts again if their start differs; otherwise it stays, within the new bounds.
  void Reconfigure(const BudgetBounds& bounds);
  void FillGauges(LinkGauges& gauges) const;
  const WorkerFaults& faults() const { return faults_; }

 private:
  void LookLater(TimePoint when);
  void Look();
  void LookAtSlice();
  void LookForFaults();
  bool Active();
  void OnSight(TimePoint now, const LinkSight& sight);
  void CheckProfile(const ScheduleState& schedule, const BudgetObservation& seen);
  void CountSight(const LinkSight& sight);
  void ApplyBudget();

  LinkLoop& loop_;
  const OnBudgetChange on_change_;
  const OnWorkerFaults on_faults_;
  const OnProfileMismatch on_mismatch_;
  TimerQueue::Id timer_;
  TimerQueue::Id faults_timer_;
  int64_t ended_before_look_ = 0;
  // Values of the schedule at the last look.
  int64_t ended_calls_ = 0;
  std::chrono::nanoseconds backlogged_time_{0};
  int64_t backlogged_bytes_ = 0;
  std::chrono::nanoseconds idle_time_{0};  // while calls waited for the budget and nothing was lost
  BudgetBounds bounds_;
  BudgetState budget_;
  TimePoint look_began_;
  TimePoint observed_until_;
  std::optional<WorkerPool::Key> last_looked_at_;  // empty between two looks
  LinkSight sight_;
  WorkerFaults faults_;
  ProfileCheck profile_check_;
};

}  // namespace sluice
