#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "sluice/link_profile.h"
#include "sluice/plan.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace sluice {

class ScheduleMachine;

// Decides who may send when. The names below are those of flags and configs.
//   unscheduled  Everything is sent at once, whatever the budget is: the baseline, and the right choice for ample
//                buffers.
//   batches      The slots of the source paper: n workers are asked at T~ * i, and a block begins when the one before
//                has ended.
//   rolling      The next request leaves as soon as its response fits the budget.
//   grants       Requests leave early, so that workers think at the same time. An answer that is ready waits at its
//                worker until the budget has room for it; a large one is granted in parts.
enum class Discipline { kUnscheduled, kBatches, kRolling, kGrants };

std::string_view DisciplineName(Discipline discipline);
absl::StatusOr<Discipline> ParseDiscipline(std::string_view name);

// A point on the caller's monotonic clock. The schedule itself reads no clock.
using TimePoint = std::chrono::steady_clock::time_point;

using BlockId = uint64_t;  // never reused
struct CallId {
  uint32_t slot = 0;
  uint32_t generation = 0;  // distinguishes a call from the one that had the same slot before
  friend bool operator==(CallId, CallId) = default;
};

// One call that the caller wants to make.
struct CallRequest {
  int64_t response_bytes = 0;  // expected size of the answer, or of all messages of a stream: 0 to kMaxResponseBytes
                               // (of sluice/plan.h). An empty answer still costs a packet; OnReady tells the true size
  uint64_t tag = 0;            // the caller's own value; comes back with every action
  bool may_idle = false;       // the call may stay open between messages: with grants, no bytes come early, since what
                               // is left of them would stay charged until then
  bool parked = false;         // the worker cannot take it now; the call blocks no other until Unpark
  uint32_t worker = 0;         // the worker that is asked; 0: not known, and without a share
  bool retry = false;          // SubmitAhead: an earlier attempt has failed, so all others leave first
};

// An action that the caller carries out. Each call ends exactly once: by kExpire, by kDrop, or by the caller's
// OnFinished.
struct Action {
  enum class Kind {
    kSend,   // Send the request, and let the worker send `bytes` of the answer; 0 lets only the length prefix come. The
             // caller then reports OnReady, OnReceived, and OnFinished when the call has ended in any way; or OnUnsent.
    kGrant,  // Let the worker send `bytes` more of the answer.
    kStall,  // For counting; nothing is to be done. Granted bytes did not come in time, and other calls get their
             // budget. May come again after progress.
    kExpire,  // The call has ended: the block's deadline passed while it waited. Nothing was sent.
    kDrop,    // The call has ended: it was cancelled while it waited. Nothing was sent.
    kAbort,   // Cancel the RPC; OnFinished still follows. The block was cancelled while the call was out, or its
              // deadline passed before anything of the answer was granted.
  };
  Kind kind;
  CallId call;
  uint64_t tag;
  int64_t bytes = 0;  // kSend: 0 or more, kMaxResponseBytes for unscheduled. kGrant: 1 or more. The caller opens the
                      // window of the stream by this much more (WINDOW_UPDATE: RFC 9113, section 6.9)
  friend bool operator==(const Action&, const Action&) = default;
};

// How a call in flight ended. kArrived: the whole answer is here, or an error instead of one. kAborted: anything else,
// such as an abort, a deadline or a lost connection. Bytes that were granted to an aborted call may still arrive, so
// its charge is released only after a round trip and the time that a full buffer takes to drain (at once where there is
// no budget).
enum class CallEnd { kArrived, kAborted };

// A part of the link's budget that this process may use for some time, where several processes share the link. See
// docs/sharing.md.
struct BudgetLease {
  int64_t bytes = 0;                   // may be in flight; 0 or more. At 0 nothing leaves
  TimePoint until = TimePoint::max();  // end of the lease; `bytes` is 0 from then on
  int64_t link_bytes = 0;              // the whole budget of the link; at least 1, and at least `bytes`
  int64_t plan_bytes = 0;              // the budget that parts of answers are sized for; 0 to link_bytes
  // Whether a call that costs more than `bytes` may go alone, as it may with a budget. Otherwise it waits for a larger
  // lease, since what other processes hold is in flight, too.
  bool may_exceed = false;
};

// What the schedule wants of the link, and what it uses, at one moment.
struct LinkDemand {
  int64_t limit_bytes = 0;      // may be in flight now
  int64_t demand_bytes = 0;     // cost of what is still to come of all calls that have not ended, except parked ones
  int64_t in_flight_bytes = 0;  // may be in the network now, with the headers that may come at any moment
  int64_t need_bytes = 0;       // a lease that is enough for the next call, with the headers of stragglers; 0 if
                                // no call waits
  int64_t received_bytes = 0;   // of answers, since the start, in units of the budget
  BlockId oldest_block = 0;     // the oldest block that has not ended; 0 if there is none
  TimePoint oldest_since;       // when that block was submitted
};

// The state of the schedule at one moment. submitted = waiting + ungranted + in_flight + ended.
struct ScheduleState {
  int64_t budget_bytes = 0;      // the largest int64_t for unscheduled
  int64_t plan_bytes = 0;        // a grant costs at most a third of this; equal to the budget unless a lease differs
  int64_t in_flight_bytes = 0;   // charged, in units of the budget, with aborted calls that still drain
  int64_t slow_bytes = 0;        // of these, to workers whose share is less than a part; a third of the budget counts
  int64_t in_flight_calls = 0;   // sent, and part of the answer was granted, or there is nothing to grant
  int64_t ungranted_calls = 0;   // grants: sent without a grant, whether ready or not
  int64_t straggling_calls = 0;  // grants: those of the ungranted that are too late to count in the window
  int64_t grant_window = 0;      // grants: maximum of ungranted calls, without stragglers
  int64_t waiting_calls = 0;     // with parked and held ones
  int64_t parked_calls = 0;
  int64_t held_calls = 0;  // wait until their worker has less than its share outstanding
  int64_t blocks = 0;      // that have not ended
  int64_t submitted_calls = 0;
  int64_t ended_calls = 0;
  // Since the start: how long a request or a response waited for the budget, and what came in this time, in units of
  // the budget. Calls of a full worker do not wait for the budget.
  std::chrono::nanoseconds backlogged_time{0};
  int64_t backlogged_bytes = 0;
};

// One worker of the schedule at one moment, in units of the budget.
struct WorkerLoad {
  int64_t share_bytes = 0;    // may be outstanding
  bool slow = false;          // the share is less than one part
  int64_t charged_bytes = 0;  // outstanding, except early and stalled bytes
  int64_t owed_bytes = 0;     // outstanding, ready at the worker and not stalled
  int64_t calls = 0;          // that have not ended
  int64_t out_calls = 0;      // of these, sent
  int64_t owing_calls = 0;    // of these, bytes are granted and ready at the worker, stalled or not
  int64_t stalled_calls = 0;  // of these, granted bytes did not come in time
  int64_t ended_calls = 0;    // that were sent, since the start
  TimePoint owed_since;       // if calls owe: since when, or when something came from the worker last
  int64_t pauses = 0;         // since the start: something came only after kPause and a round trip in which calls owed

  // Nearly the least retransmission timeout of Linux. Its clock ticks every 1 to 10 ms.
  static constexpr std::chrono::milliseconds kPause{190};
};

// The schedule of one bottleneck link: a state machine that takes events with their time and appends the actions that
// follow. There is one for each link, for all fan-outs that come in over it. Not thread-safe.
//
// Every event first does what was due by its `now`, so a late timer never lets a call leave after its deadline. A `now`
// before that of the last event counts as that one. An event that returns an error appends no actions.
//
// Bytes that are granted and not received may be in the port buffer, and a call is charged for exactly these. At every
// admission all charges fit the budget, or one call is alone. A granted byte cannot be taken back; with a smaller
// budget charges only drain. Charges exceed the budget only after a stall, which is counted.
//
// All disciplines admit in the same order: first block first, and in a block first call first (batches deal a block
// into slots). A request leaves when its time has come (batches only) and the bytes that come with it fit what is left
// of the budget; no other overtakes it. In rolling and batches the whole expected answer comes with the request;
// rolling sends an answer that costs more than the budget in parts.
//
// Each worker has a share of the budget, except in batches and unscheduled. The share follows how fast the worker
// delivers, and is never more than it delivers while the link receives two budgets, or a packet. Calls of a worker that
// has its share outstanding are passed over. See "Slow workers" in docs/scheduling.md.
//
// Grants admit twice. A request leaves, in the same order, while the window is open. Its answer is granted when it is
// ready and fits: the oldest block first, then the answer that was ready first. A call that is not ready blocks no
// other. An answer that costs more than a third of the budget is granted in parts, and smaller ones overtake it. An
// answer that was held for 3 s goes first. Headers of an answer may come at any moment until it is ready, so room for
// them is kept beside the granted bytes. While answers are ready within about a round trip, or everything that is asked
// for fits a third of the budget, requests leave early, with their grants; in the first case, calls that are out are
// granted early, too. Early bytes take at most a third of the budget together, since only DATA or the end of the call
// frees them. In the other disciplines, except unscheduled, the same rules grant what an answer has beyond the bytes
// that came with its request. See docs/scheduling.md.
class LinkSchedule {
 public:
  struct Options {
    LinkProfile profile;
    Discipline discipline = Discipline::kGrants;
    std::optional<int64_t> budget_bytes;  // at least 1; default: the buffer of the profile
    int64_t queue_limit = 65536;          // maximum number of calls that wait; at least 1
    // Granted bytes count as stalled when none of them has come for this long, plus a round trip and the time in which
    // the budget drains. Above 0.
    absl::Duration stall_timeout = absl::Milliseconds(300);
    // Bytes of framing in a part of an answer, so that the part fills whole packets; at least 0. An HTTP/2 frame header
    // is 9 bytes (RFC 9113, section 4.1). TLS adds 22 bytes for each record, which makes 31: a Link raises it to that
    // once one of its workers speaks TLS.
    int64_t record_overhead_bytes = 9;
  };
  // Returns InvalidArgument for a profile or option that is out of bounds.
  static absl::StatusOr<LinkSchedule> Create(const Options& options);

  LinkSchedule(LinkSchedule&&) noexcept;
  LinkSchedule& operator=(LinkSchedule&&) noexcept;
  ~LinkSchedule();

  // Queues a block of calls. TimePoint::max() means no deadline. `ids`, if given, receives the ids of the calls in the
  // order of `calls`. Returns ResourceExhausted if the queue has no room for all of them now; InvalidArgument if it
  // never will have, if a size is out of bounds, or if there is no call; DeadlineExceeded if the deadline is not after
  // `now`. After an error nothing has changed.
  absl::StatusOr<BlockId> Submit(TimePoint now, absl::Span<const CallRequest> calls, TimePoint deadline,
                                 std::vector<Action>& actions, std::vector<CallId>* ids = nullptr);

  // Adds one call (a retry, a hedge) to a block that has not ended. It takes the block's place in the queue, behind the
  // block's own waiting calls; in batches it gets one more slot. A block ends with its last call, so add a retry before
  // OnFinished of the call that it replaces. The queue limit does not apply. Returns NotFound if the block has ended,
  // Cancelled or DeadlineExceeded if the block only waits for its calls in flight, InvalidArgument for a size out of
  // bounds. After an error nothing has changed.
  absl::StatusOr<CallId> Add(TimePoint now, BlockId block, CallRequest call, std::vector<Action>& actions);

  // Queues a block of one call that leaves before all other waiting calls as soon as all of its bytes fit, and is
  // charged for all of them. It is for what a connection receives before its first answer: TCP and TLS handshakes (192
  // bytes to 6 KB). The queue limit and slots do not apply. Otherwise as Submit.
  absl::StatusOr<BlockId> SubmitAhead(TimePoint now, CallRequest call, TimePoint deadline, std::vector<Action>& actions,
                                      CallId* id = nullptr);

  // The worker of a parked call can take it now. Calls are parked from the start (CallRequest::parked), or by OnUnsent.
  // A parked call counts as waiting, expires and is dropped like one, and blocks no other. An unparked call goes to the
  // end of its block's waiting calls; in batches it gets one more slot. Ignored in any other state.
  void Unpark(TimePoint now, CallId call, std::vector<Action>& actions);

  // kSend could not be carried out, or the worker never looked at the request (REFUSED_STREAM, GOAWAY). All of the
  // call's charge is released at once, and the call is parked, or expires if its block's deadline has passed. After
  // kAbort only the charge is released, and OnFinished still has to follow.
  void OnUnsent(TimePoint now, CallId call, std::vector<Action>& actions);

  // Headers of the response have come, and took `wire_bytes` of the connection. Headers that come before the response
  // is ready, or instead of it, count from OnReady or OnFinished on: the room for headers that may come follows their
  // mean. Ignored for calls that are not out, and below 1.
  void OnHeaders(CallId call, int64_t wire_bytes);

  // The length prefix of a message is here, so exactly `remaining_bytes` have still to come; for a stream the caller
  // adds the next prefix. Bytes that are granted already need no other grant. For a stream it may come several times,
  // and it may come after kSend with bytes. Ignored for calls that are not out. Values outside of 0 to
  // kMaxResponseBytes count as the nearest bound.
  //
  // The caller must call it as soon as the prefix is here, since the worker's time ends with it. If the caller has no
  // room for the message, `withheld_bytes` of it come in addition to `remaining_bytes`, and are not granted before
  // another OnReady adds them to `remaining_bytes`. A call with nothing but withheld bytes is in flight.
  void OnReady(TimePoint now, CallId call, int64_t remaining_bytes, std::vector<Action>& actions,
               int64_t withheld_bytes = 0);

  // `bytes` of DATA have come, without the first prefix. The charge falls at once, and the stall time of granted bytes
  // that are still outstanding starts again. Bytes that came without a grant (the spare byte of a stream's window) make
  // the next grant larger. Ignored for calls that are not out, and below 1.
  void OnReceived(TimePoint now, CallId call, int64_t bytes, std::vector<Action>& actions);

  // The caller has given up a call, and keeps its stream open until the worker may be sent a reset. What is left of the
  // response is granted only while no other response has a turn, or after it was held for 3 s, so that the stream ends.
  // Once it was ready, its deadline ends it no more. Ignored for calls that are not out.
  void OnUnwanted(TimePoint now, CallId call, std::vector<Action>& actions);

  // The end of a call, and the cancellation of a block or of one call. A block ends when all of its calls have ended.
  // Unknown calls and blocks have ended before, and are ignored. Cancel and CancelCall may come twice: each call that
  // was sent gets one kAbort, each that waits one kDrop. CancelCall leaves the other calls of the block alone.
  void OnFinished(TimePoint now, CallId call, CallEnd end, std::vector<Action>& actions);
  void Cancel(TimePoint now, BlockId block, std::vector<Action>& actions);
  void CancelCall(TimePoint now, CallId call, std::vector<Action>& actions);

  // Call it at or after NextTimer(). It does what is due: slots, deadlines, aborted calls that have drained, granted
  // bytes that have stalled, stragglers that leave the window.
  void OnTimer(TimePoint now, std::vector<Action>& actions);
  TimePoint NextTimer() const;  // TimePoint::max() if there is nothing to wait for

  // Sets the budget, and admits at once what a larger one lets through. Blocks that batches has dealt keep their slots.
  // Unscheduled ignores it. Returns InvalidArgument below 1 byte.
  absl::Status SetBudget(TimePoint now, int64_t budget_bytes, std::vector<Action>& actions);

  // As SetBudget, for a lease. Returns InvalidArgument for a field that is out of bounds.
  absl::Status SetLease(TimePoint now, const BudgetLease& lease, std::vector<Action>& actions);
  // What one worker has outstanding. ForgetWorker forgets what was learnt of it; it does nothing while the worker has
  // calls that have not ended.
  WorkerLoad Load(uint32_t worker) const;
  void ForgetWorker(uint32_t worker);

  // Takes over other options; budget_bytes is ignored (see SetBudget). Calls that are queued or out keep their charge
  // until something of them is granted or received. Returns InvalidArgument as Create does, and for another discipline
  // or stall_timeout; then nothing has changed.
  absl::Status Reconfigure(TimePoint now, const Options& options, std::vector<Action>& actions);

  ScheduleState State() const;
  LinkDemand Demand(TimePoint now) const;
  // Whether a response of this size is granted in one part: its cost fits a third of the budget. With grants, such a
  // response may come whole before it is ready, and of a larger one no more than a part.
  bool FitsOnePart(int64_t response_bytes) const;
  const Options& options() const;

 private:
  explicit LinkSchedule(std::unique_ptr<ScheduleMachine> machine);
  std::unique_ptr<ScheduleMachine> machine_;
};

}  // namespace sluice
