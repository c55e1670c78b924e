#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sluice/schedule.h"
#include "sluice/time_point.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lib/scheduling/admission.h"
#include "lib/scheduling/backlog.h"
#include "lib/scheduling/batch_slots.h"
#include "lib/scheduling/breaches.h"
#include "lib/scheduling/dispatcher.h"
#include "lib/scheduling/link_observer.h"
#include "lib/scheduling/live_calls.h"
#include "lib/scheduling/schedule_events.h"

namespace sluice {

// The schedule of one bottleneck link: a state machine that takes events with their time, and appends the actions that
// follow. There is one for each link, for all fan-outs that come in over it. Not thread-safe.
//
// Each event has three steps. Enter does everything that was due by `now`, so a late timer never lets a call leave
// after its deadline. Then the event itself happens. Finally Admit lets through the calls that fit now. If `now` is
// before the time of the last event, that time is used instead. An event that returns an error appends no actions.
//
// Bytes that are granted and not received may be in the port buffer, so a call is charged for exactly these bytes. At
// every admission all charges fit the budget, or one call is alone; a paced link has more on the way. A granted byte
// cannot be revoked; if the budget shrinks, charges only drain. Charges exceed the budget only after a stall, which is
// counted.
//
// One block is next, by ServiceOrder: the smallest one, or the oldest one. Its calls leave in order (batches deal a
// block into slots). In batches a request leaves only when its time has come. In all policies it leaves when the bytes
// that come with it fit the rest of the budget; no other request overtakes it. In rolling and batches the whole
// expected response comes with the request. Rolling sends a response that costs more than the budget in parts.
//
// Known numbers decide the order and the charges: announced sizes, bytes that came, times that passed. A guess, such as
// an expected size, only lets bytes of its own call come early (docs/internals/scheduling.md, "Facts and guesses").
//
// Each worker has a share of the budget, except in batches and unscheduled. The share follows the speed of the worker.
// It is never more than the worker delivers while the link receives two budgets, or one packet. Calls of a worker that
// has its share outstanding are passed over. See "Slow workers" in docs/internals/scheduling.md.
//
// Grants admit twice. A request costs the room for its headers, which may arrive at any moment until the response is
// ready. It leaves while there is such room, unless its block or its class has enough responses that are ready. The
// response is granted when it is ready and fits, in the order of blocks, and in a block the shortest message first. A
// call that is not ready blocks no other. A response that costs more than a third of the budget is granted in parts,
// and smaller ones overtake it.
//
// Requests leave early, with their grants, while no response is ready and waits: if responses are ready within about a
// round trip, or if all expected responses of the class fit a third of the budget. In the first case, calls that are
// out are granted early, too. All early bytes together take at most a third of the budget. Early bytes that do not come
// within a stall timeout leave their room to others.
//
// In rolling and batches the same rules grant the bytes of a response that did not come with its request. See
// docs/internals/scheduling.md.
//
// A byte tunnel asks for turns (CallRequest::window_bytes), in grants and rolling. A turn waits like a ready response
// of response_bytes, without kSend. Its only kGrant is the window. From then until OnFinished the window is charged:
// OnReceived reports bytes that were read, and reading them opens the window again.
class LinkSchedule {
 public:
  explicit LinkSchedule(const ScheduleOptions& options);  // must be valid
  LinkSchedule(const LinkSchedule&) = delete;             // its parts refer to each other

  // Queues a block of calls. TimePoint::max() means no deadline. `ids`, if given, receives the ids of the calls in the
  // order of `calls`. Returns ResourceExhausted if the queue has no room for all calls now. Returns InvalidArgument if
  // it never will, if a size is out of bounds, or if `calls` is empty. Returns DeadlineExceeded if the deadline is not
  // after `now`. After an error nothing has changed. `traffic_class` is an index of ScheduleOptions::classes.
  absl::StatusOr<BlockId> Submit(TimePoint now, absl::Span<const CallRequest> calls, TimePoint deadline,
                                 std::vector<Action>& actions, std::vector<CallId>* ids = nullptr,
                                 size_t traffic_class = 0);

  // Adds one call (a retry, a hedge) to a block that has not ended. The call takes the block's place in the queue,
  // behind the block's own waiting calls; in batches it gets one more slot. A block ends with its last call, so add a
  // retry before OnFinished of the call that it replaces. The queue limit does not apply.
  //
  // Returns NotFound if the block has ended, and InvalidArgument if the size is out of bounds. Returns Cancelled or
  // DeadlineExceeded if the block only waits for its calls in flight. After an error nothing has changed.
  absl::StatusOr<CallId> Add(TimePoint now, BlockId block, CallRequest call, std::vector<Action>& actions);

  // Queues a block of one call that leaves before all other waiting calls as soon as all of its bytes fit. It is
  // charged for all of them. It represents the bytes that a connection receives before its first response: TCP and TLS
  // handshakes (192 bytes to 6 KB). The queue limit and slots do not apply. Otherwise like Submit.
  absl::StatusOr<BlockId> SubmitAhead(TimePoint now, CallRequest call, TimePoint deadline, std::vector<Action>& actions,
                                      CallId* id = nullptr);

  // Reports that the worker of a parked call can take it now. Calls are parked from the start (CallRequest::parked), or
  // by OnUnsent. A parked call counts as waiting, expires and is dropped like a waiting call, and blocks no other. An
  // unparked call goes to the end of its block's waiting calls; in batches it gets one more slot. Ignored in any other
  // state.
  void Unpark(TimePoint now, CallId call, std::vector<Action>& actions);

  // Reports that kSend could not be carried out, or that the worker did not process the request (REFUSED_STREAM,
  // GOAWAY). The whole charge of the call is released at once. The call is parked, or expires if its block's deadline
  // has passed. After kAbort only the charge is released, and OnFinished must still follow.
  void OnUnsent(TimePoint now, CallId call, std::vector<Action>& actions);

  // Reports headers of the response, which took `wire_bytes` of the connection. Their mean size sets the room that is
  // kept for the headers of further responses of this worker. Headers that come before the response is ready, or
  // instead of it, enter the mean at OnReady or OnFinished. Ignored for calls that are not out, and for sizes below 1.
  void OnHeaders(CallId call, int64_t wire_bytes);

  // Reports that the length prefix of a message has arrived, so exactly `remaining_bytes` must still come; for a stream
  // the caller adds the next prefix. Bytes that are already granted need no other grant. A stream may report it several
  // times, and it may follow a kSend with bytes. Ignored for calls that are not out. Values outside of 0 to
  // kMaxResponseBytes count as the nearest bound.
  //
  // Call it as soon as the prefix arrives, since the worker's time ends with it. If the caller has no room for the
  // message, `withheld_bytes` come in addition to `remaining_bytes`. They are not granted before another OnReady adds
  // them to `remaining_bytes`. A call with nothing but withheld bytes is in flight.
  void OnReady(TimePoint now, CallId call, int64_t remaining_bytes, std::vector<Action>& actions,
               int64_t withheld_bytes = 0);

  // Reports `bytes` of DATA, without the first prefix. The charge falls at once, and the stall timer of outstanding
  // bytes starts again. Bytes that came without a grant (the spare byte of a stream's window) make the next grant
  // larger. Ignored for calls that are not out, and for sizes below 1.
  void OnReceived(TimePoint now, CallId call, int64_t bytes, std::vector<Action>& actions);

  // Reports that the caller has given up a call, and keeps its stream open until it may send a reset to the worker. The
  // rest of the response is granted only while no other response has a turn. Once the response is ready, its deadline
  // no longer ends it. Ignored for calls that are not out.
  void OnUnwanted(TimePoint now, CallId call, std::vector<Action>& actions);

  // Report the end of a call, or cancel a block or one call. A block ends when all of its calls have ended. Unknown
  // calls and blocks have ended before, and are ignored. Cancel and CancelCall may come twice. Each call that was sent
  // gets one kAbort, and each waiting call one kDrop. CancelCall leaves the other calls of the block alone.
  void OnFinished(TimePoint now, CallId call, CallEnd end, std::vector<Action>& actions);
  void Cancel(TimePoint now, BlockId block, std::vector<Action>& actions);
  void CancelCall(TimePoint now, CallId call, std::vector<Action>& actions);

  // Call it at or after NextTimer(). It handles everything that is due: slots, deadlines, aborted calls that have
  // drained, granted bytes that have stalled, and stragglers that leave their room to others.
  void OnTimer(TimePoint now, std::vector<Action>& actions);
  TimePoint NextTimer() const;  // TimePoint::max() if no timer is needed

  // Sets the budget, and admits at once the calls that a larger budget lets through. Blocks that batches has dealt keep
  // their slots. Unscheduled ignores it. Returns InvalidArgument below 1 byte.
  absl::Status SetBudget(TimePoint now, int64_t budget_bytes, std::vector<Action>& actions);

  // Like SetBudget, for a lease. Returns InvalidArgument for a field that is out of bounds.
  absl::Status SetLease(TimePoint now, const BudgetLease& lease, std::vector<Action>& actions);
  // Load returns the outstanding bytes and calls of one worker. ForgetWorker drops the measurements of a worker; it
  // does nothing while the worker has calls that have not ended.
  WorkerLoad Load(uint32_t worker) const;
  void ForgetWorker(uint32_t worker) { workers_.Forget(worker); }

  // Unscheduled only. Observation returns what a schedule would have changed. OnSilence reports that TCP has
  // seen losses of packets of these workers, although calls of theirs are out.
  const LinkObservation& Observation() const { return observer_.observation(); }
  void OnSilence(absl::Span<const uint32_t> workers) { observer_.OnSilence(workers); }

  // Replaces the options, except budget_bytes (see SetBudget). Calls that are queued or out keep their charge until
  // some of their bytes are granted or received. With a different policy, calls that are out keep what they were
  // granted, and are charged for it; the budget begins again if the old or the new policy is unscheduled. Returns
  // InvalidArgument like ScheduleOptions::Validate, and for a different stall_timeout or other names of classes; then
  // nothing has changed.
  absl::Status Reconfigure(TimePoint now, const ScheduleOptions& options, std::vector<Action>& actions);

  Breaches& breaches() { return breaches_; }
  ScheduleState State() const;
  TrafficClassState ClassState(size_t traffic_class) const;
  LinkDemand Demand(TimePoint now) const;
  // Returns whether a response of this size is granted in one part: it costs at most a third of plan_bytes. With
  // grants, such a response may come whole before it is ready. A larger response may send only one part.
  bool FitsOnePart(int64_t response_bytes) const { return admission_.PartOf(response_bytes) == response_bytes; }
  const ScheduleOptions& options() const { return options_; }

 private:
  using Phase = Call::Phase;

  absl::Status CheckSubmit(TimePoint now, absl::Span<const CallRequest> calls, TimePoint deadline,
                           size_t traffic_class) const;
  void Enter(TimePoint now, std::vector<Action>& actions);
  void Expire(std::vector<Action>& actions);
  void Admit(std::vector<Action>& actions);

  void EndBlock(QueuedBlock& block, Action::Kind kind, std::vector<Action>& actions);
  void Abort(Call& call, std::vector<Action>& actions);
  void OnCallGone(QueuedBlock& block);

  ScheduleOptions options_;
  Breaches breaches_;

  TimePoint now_ = TimePoint::min();  // of the last event
  Backlog backlog_;
  BatchSlots slots_;
  LiveCalls calls_;
  // Parts of calls_.
  BlockQueue& blocks_;
  Budget& budget_;
  QueuedWorkers& workers_;
  SentCalls& sent_;
  const ServiceOrder& order_;
  LinkObserver& observer_;
  Admission admission_;
  Dispatcher dispatcher_;
};

}  // namespace sluice
