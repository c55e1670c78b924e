#pragma once

#include <chrono>
#include <cstdint>

#include "sluice/plan.h"
#include "sluice/schedule.h"

#include "lib/scheduling/block_queue.h"
#include "lib/scheduling/budget.h"
#include "lib/scheduling/call_table.h"
#include "lib/scheduling/queued_worker.h"
#include "lib/scheduling/schedule_events.h"
#include "lib/scheduling/stall_timers.h"
#include "lib/scheduling/worker_laps.h"

namespace sluice {

// Tracks, byte by byte, how much of each call may still arrive, and charges the call and its worker for it. The charge
// is the BufferCostBytes of the bytes that were granted and not received. Early bytes are granted before the response
// is ready, with the request or later. Their worker may think for any time. Early bytes that do not come within a stall
// timeout are late: their charge goes to other calls, too. The budget, the laps and the blocks must outlive it. There
// is one for each schedule. Not thread-safe.
class Outstanding {
 public:
  Outstanding(const ScheduleOptions& options, BlockQueue& blocks, Budget& budget, WorkerLaps& laps);

  void SetProfile(const LinkProfile& profile);  // a call keeps its charge until its next change

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

  // Takes back what an unsent call has claimed for its block. Call it after Release.
  static void Disclaim(Call& call);

  // Returns the first call whose bytes did not come in time, or null. If only its early bytes were charged, they are
  // late; otherwise the call has stalled, and is charged only for its early bytes from then on.
  struct Overdue {
    Call* call = nullptr;
    bool stalled = false;
  };
  Overdue TakeOverdue(TimePoint now);
  int64_t late_bytes() const { return late_bytes_; }  // cost of all late early bytes
  TimePoint next_stall() const { return stall_timers_.next(); }

 private:
  void Recharge(Call& call, TimePoint now, bool progress);
  struct Charges {
    int64_t all = 0;
    int64_t early = 0;  // part of all bytes
    int64_t owed = 0;
  };
  void SetCharge(Call& call, const Charges& charges, TimePoint now, bool progress);
  void CountInBlock(Call& call);
  void SetTimer(Call& call, TimePoint now, bool progress);
  static void EndStall(Call& call);
  static bool Owes(const Call& call);
  static void SetOwes(Call& call, bool owes, TimePoint now);
  int64_t OwedBytes(const Call& call) const;
  int64_t StillToCome(const Call& call) const;

  LinkProfile profile_;
  BlockQueue& blocks_;
  Budget& budget_;
  WorkerLaps& laps_;
  StallTimers stall_timers_;
  std::chrono::nanoseconds pause_{0};
  int64_t late_bytes_ = 0;
};

}  // namespace sluice
