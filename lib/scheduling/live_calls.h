#pragma once

#include <cstdint>
#include <vector>

#include "sluice/schedule.h"

#include "lib/scheduling/block_queue.h"
#include "lib/scheduling/breaches.h"
#include "lib/scheduling/budget.h"
#include "lib/scheduling/call_table.h"
#include "lib/scheduling/grant_queue.h"
#include "lib/scheduling/link_observer.h"
#include "lib/scheduling/outstanding.h"
#include "lib/scheduling/queued_workers.h"
#include "lib/scheduling/schedule_events.h"
#include "lib/scheduling/sent_calls.h"
#include "lib/scheduling/service_order.h"
#include "lib/scheduling/worker_laps.h"

namespace sluice {

// The calls that have not ended, and each step that a call can take. A step updates the phase, the charge and the turn
// of the call, and all counts. The user of this class decides whether a step may be taken. There is one for each
// schedule. Not thread-safe.
class LiveCalls {
 public:
  LiveCalls(const ScheduleOptions& options, Breaches& breaches);  // which must outlive it
  LiveCalls(const LiveCalls&) = delete;                           // its parts refer to each other

  void OnBudgetChanged(TimePoint now);
  void OnOptionsChanged(SchedulePolicy policy_before, TimePoint now);

  // Adds a call, parked or after the waiting calls of its block. The turn of a tunnel is out at once, and waits for its
  // window like a response that is ready.
  CallId Queue(QueuedBlock& block, const CallRequest& request, bool opens_slot, TimePoint now);
  void Unpark(Call& call, TimePoint now);  // the call must be parked

  // Sends a waiting call, and grants `bytes` of its response with the request.
  void Send(Call& call, int64_t bytes, TimePoint now);

  // For calls that are out.
  void TakeReady(Call& call, int64_t remaining_bytes, int64_t withheld_bytes, TimePoint now);
  void Receive(Call& call, int64_t bytes, TimePoint now);
  void Grant(Call& call, int64_t bytes, TimePoint now);       // it must be its turn, with at least `bytes` left
  void GrantEarly(Call& call, int64_t bytes, TimePoint now);  // the call must be sent, and not ready
  // Marks a call that is out, and that the caller has given up, as unwanted. Its stream is still open.
  void SetUnwanted(Call& call, TimePoint now);
  void Abort(Call& call, TimePoint now);   // nothing more is granted; the call waits for its end
  void Unsend(Call& call, TimePoint now);  // parks the call; an aborted one waits for its end
  Call* TakeStalled(TimePoint now);        // returns the first stalled call, or null

  // EndUnsent ends a call that waits, is held or is parked; Finish ends a call that is out. The block remains, even
  // without calls.
  void EndUnsent(Call& call, TimePoint now);
  void Finish(Call& call, CallEnd end, TimePoint now);

  Call* Find(CallId id) { return calls_.Find(id); }
  int64_t submitted() const { return submitted_; }  // since the start, like the next
  int64_t ended() const { return ended_; }

  // The parts, for users that decide which step is next. The references are valid as long as this object.
  BlockQueue& blocks() { return blocks_; }
  QueuedWorkers& workers() { return workers_; }
  Budget& budget() { return budget_; }
  const WorkerLaps& laps() const { return laps_; }
  const Outstanding& outstanding() const { return outstanding_; }
  GrantQueue& queue() { return queue_; }
  SentCalls& sent() { return sent_; }
  ServiceOrder& order() { return order_; }
  LinkObserver& observer() { return observer_; }

  void Check();  // the invariants; call it after each event

 private:
  using Phase = Call::Phase;

  void GrantUnready(Call& call, int64_t bytes, TimePoint now);
  void Settle(Call& call, TimePoint now);
  void LeaveCounts(Call& call, CallEnd end, TimePoint now);
  void End(Call& call, TimePoint now);
  void ObserveReady(Call& call, TimePoint now);

  const ScheduleOptions& options_;
  Breaches& breaches_;
  CallTable calls_;
  BlockQueue blocks_;
  QueuedWorkers workers_;  // outlives laps_ and queue_, which link workers
  Budget budget_;
  WorkerLaps laps_;
  Outstanding outstanding_;
  int64_t plan_bytes_;  // plan_bytes at the last LookAtAll
  GrantQueue queue_;
  SentCalls sent_;  // used by grants only
  ServiceOrder order_;
  LinkObserver observer_;      // used by unscheduled only
  uint64_t last_message_ = 0;  // that was ready
  int64_t submitted_ = 0;
  int64_t ended_ = 0;
};

}  // namespace sluice
