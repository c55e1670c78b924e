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

// Knows, byte by byte, what may come of each call, and charges the call and its worker for it: BufferCostBytes of what
// was granted and not received. Early bytes are granted before the response is ready, with the request or later. They
// have no stall timer, since nobody knows when they come. There is one for each schedule. Not thread-safe.
class Outstanding {
 public:
  explicit Outstanding(const ScheduleOptions& options);

  void SetProfile(const LinkProfile& profile);  // a call keeps its charge until something of it changes

  void OnBudgetChanged();

  // What `bytes` take of the budget, and by how much the charge of the call would rise with them.
  int64_t Cost(int64_t bytes) const;
  int64_t CostOfGrant(const Call& call, int64_t bytes) const;

  // Take note of bytes that were granted or received, or of other changes in the call's fields. The charge of the call,
  // its claim on the link and its stall timer follow: the timer starts if it does not run, and again after progress.
  void Grant(Call& call, int64_t bytes, TimePoint now);
  void GrantEarly(Call& call, int64_t bytes, TimePoint now);
  void Receive(Call& call, int64_t bytes, TimePoint now);
  void Update(Call& call, TimePoint now);

  // Something came from the worker.
  void Hear(QueuedWorker& worker, TimePoint now);

  // Releases the charge of a call that has ended, or whose request was not sent. With kArrived nothing may come any
  // more; otherwise outstanding bytes may come within the time to drain.
  void Release(Call& call, CallEnd end, TimePoint now);

  // Returns the first call that has stalled, or null. From now on it is only charged for its early bytes.
  Call* TakeStalled(TimePoint now);
  TimePoint next_stall() const { return stall_timers_.next(); }

  // The share of a worker follows what it delivers. Full: its share is outstanding. The bytes of a worker that is not
  // slow count when it owes them, since it may think for long before; a slow one may have no more than its share.
  bool IsFull(QueuedWorker& worker, TimePoint now);
  // Halves the share of a worker that is late while others wait for room, and returns the worker; null if none is late.
  QueuedWorker* TakeLate(TimePoint now);
  TimePoint next_late() const;
  int64_t late_laps() const { return late_laps_; }  // since the start
  int64_t ShareBytes(const QueuedWorker& worker) const {
    return worker.bounded ? worker.share.Bytes(LinkAt(TimePoint())) : budget_.bytes();
  }

  Budget& budget() { return budget_; }
  const Budget& budget() const { return budget_; }
  int64_t asked_bytes() const { return asked_bytes_; }        // cost of what is still to come, except for parked calls
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
  // The workers that owe bytes, by the beginning of their laps.
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
