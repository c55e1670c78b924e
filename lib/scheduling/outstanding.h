#pragma once

#include <chrono>
#include <cstdint>

#include <boost/intrusive/list.hpp>

#include "sluice/plan.h"
#include "sluice/schedule.h"

#include "lib/scheduling/budget.h"
#include "lib/scheduling/call_table.h"
#include "lib/scheduling/queued_worker.h"
#include "lib/scheduling/schedule_events.h"
#include "lib/scheduling/stall_timers.h"

namespace sluice {

// Tracks, byte by byte, how much of each call may still arrive, and charges the call and its worker for it. The charge
// is the BufferCostBytes of the bytes that were granted and not received. Early bytes are granted before the response
// is ready, with the request or later. They have no stall timer, since the time of their arrival is unknown. There is
// one for each schedule. Not thread-safe.
class Outstanding {
 public:
  explicit Outstanding(const ScheduleOptions& options);

  void SetProfile(const LinkProfile& profile);  // a call keeps its charge until its next change

  void OnBudgetChanged();

  // Cost returns how much of the budget `bytes` take. CostOfGrant returns by how much granting them raises the charge.
  int64_t Cost(int64_t bytes) const;
  int64_t CostOfGrant(const Call& call, int64_t bytes) const;

  // Record bytes that were granted or received, or other changes of the call. They update the charge of the call, its
  // claim on the link and its stall timer. The timer starts if it does not run, and again after progress.
  void Grant(Call& call, int64_t bytes, TimePoint now);
  void GrantEarly(Call& call, int64_t bytes, TimePoint now);
  void Receive(Call& call, int64_t bytes, TimePoint now);
  void Update(Call& call, TimePoint now);

  // Records that something has arrived from the worker.
  void Hear(QueuedWorker& worker, TimePoint now);

  // Releases the charge of a call that has ended, or whose request was not sent. With kArrived no more bytes can
  // arrive. With kAborted, outstanding bytes may arrive within the drain time, and stay charged until then.
  void Release(Call& call, CallEnd end, TimePoint now);

  // Returns the first call that has stalled, or null. From then on the call is charged only for its early bytes.
  Call* TakeStalled(TimePoint now);
  TimePoint next_stall() const { return stall_timers_.next(); }

  // Returns whether the worker is full: it has its share outstanding. The share follows the bytes that the worker
  // delivers. Bytes of a worker that is not slow count only once the worker owes them, since it may think for a long
  // time before. All charged bytes of a slow worker count.
  bool IsFull(QueuedWorker& worker, TimePoint now);
  // Halves the share of a late worker, and returns the worker, or null if none is late. Call it while a call waits for
  // room.
  QueuedWorker* TakeLate(TimePoint now);
  TimePoint next_late() const;
  int64_t late_laps() const { return late_laps_; }  // since the start
  int64_t ShareBytes(const QueuedWorker& worker) const {
    return worker.bounded ? worker.share.Bytes(LinkAt(TimePoint())) : budget_.bytes();
  }

  Budget& budget() { return budget_; }
  const Budget& budget() const { return budget_; }
  int64_t asked_bytes() const { return asked_bytes_; }        // cost of the bytes still to come, without parked calls
  int64_t received_bytes() const { return received_bytes_; }  // since the start, in units of the budget

 private:
  void Recharge(Call& call, TimePoint now, bool progress);
  void SetCharge(Call& call, int64_t charge, int64_t early, int64_t owed, TimePoint now, bool progress);
  bool Look(QueuedWorker& worker, const WorkerShare::Link& link, bool wanted);
  void QueueLap(QueuedWorker& worker);
  static void EndStall(Call& call);
  void CountSlow(QueuedWorker& worker);
  static bool Owes(const Call& call);
  static void SetOwes(Call& call, bool owes, TimePoint now);
  int64_t OwedBytes(const Call& call) const;
  int64_t StillToCome(const Call& call) const;
  WorkerShare::Link LinkAt(TimePoint now) const;

  LinkProfile profile_;
  Budget budget_;
  StallTimers stall_timers_;
  // The workers that owe bytes, in the order in which their laps began.
  boost::intrusive::list<QueuedWorker, boost::intrusive::base_hook<LapHook>,
                         boost::intrusive::constant_time_size<false>>
      laps_;
  std::chrono::nanoseconds long_lap_{0};
  std::chrono::nanoseconds pause_{0};
  int64_t late_laps_ = 0;
  int64_t asked_bytes_ = 0;
  int64_t received_bytes_ = 0;
};

}  // namespace sluice
