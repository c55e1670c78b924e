#pragma once

#include <cstdint>

#include "sluice/link_schedule.h"

#include "lib/scheduling/budget.h"
#include "lib/scheduling/call_table.h"
#include "lib/scheduling/stall_timers.h"

namespace sluice {

// What may come of each call, byte by byte, and what the call is charged for it: BufferCostBytes of what was granted
// and has not been received. Early bytes are those that left with a request, before anything was ready; they have no
// stall timer, since nobody knows when they come. One a schedule, not thread-safe.
class Outstanding {
 public:
  explicit Outstanding(const LinkSchedule::Options& options);

  void SetProfile(const LinkProfile& profile);  // calls keep their charges until something of them changes

  // What so many bytes take of the budget, and by how much the charge of the call would rise with them.
  int64_t Cost(int64_t bytes) const;
  int64_t CostOfGrant(const Call& call, int64_t bytes) const;

  // The fields of the call say what was granted, received or asked for: its charge, its claim on the link and its stall
  // timer follow. The timer starts when it does not run; after progress it starts again.
  void Grant(Call& call, int64_t bytes, TimePoint now);
  void GrantEarly(Call& call, int64_t bytes, TimePoint now);
  void Receive(Call& call, int64_t bytes, TimePoint now);
  void Update(Call& call, TimePoint now);

  // The call has ended, or its request was not sent: of what was outstanding nothing may come any more (kArrived), or
  // some of it within the time to drain.
  void Release(Call& call, CallEnd end, TimePoint now);

  // The first call that has stalled, charged for its early bytes alone from now on; null when there is none.
  Call* TakeStalled(TimePoint now);
  TimePoint next_stall() const { return stall_timers_.next(); }

  Budget& budget() { return budget_; }
  const Budget& budget() const { return budget_; }
  int64_t asked_bytes() const { return asked_bytes_; }        // what is still to come of all calls that are not parked
  int64_t received_bytes() const { return received_bytes_; }  // since the start, in units of the budget

 private:
  void Recharge(Call& call, TimePoint now, bool progress);
  int64_t StillToCome(const Call& call) const;

  LinkProfile profile_;
  Budget budget_;
  StallTimers stall_timers_;
  int64_t asked_bytes_ = 0;
  int64_t received_bytes_ = 0;
};

}  // namespace sluice
