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

// Who may send when. The names are those of flags, configs and metrics.
//   unscheduled  everything at once, whatever the budget: the baseline, and the right choice where the buffer is ample
//   batches      the source paper's slots: n workers at T~ * i, the next block when the last one has ended
//   rolling      the next request leaves as soon as its response fits the budget
//   grants       requests leave early, so that workers think at the same time; an answer that is ready waits at its
//                worker until it is granted, in parts where it is large, as the budget has room
enum class Discipline { kUnscheduled, kBatches, kRolling, kGrants };

std::string_view DisciplineName(Discipline discipline);
absl::StatusOr<Discipline> ParseDiscipline(std::string_view name);

// Time as the schedule sees it: a point on the caller's monotonic clock. Nothing here reads a clock.
using TimePoint = std::chrono::steady_clock::time_point;

using BlockId = uint64_t;  // never reused
struct CallId {
  uint32_t slot = 0;
  uint32_t generation = 0;  // tells a call from the one that had its slot before
  friend bool operator==(CallId, CallId) = default;
};

// One call that the caller wants made.
struct CallRequest {
  int64_t response_bytes = 0;  // expected of the answer, all messages of a stream together: 0 to kMaxResponseBytes (of
                               // sluice/plan.h). An empty answer still costs a packet
  uint64_t tag = 0;            // the caller's own; comes back with every action
  bool estimated = false;  // response_bytes is a guess. OnReady tells the size of any answer, so a guess may be wrong
  bool parked = false;     // its worker cannot be sent to now; the call blocks nobody until Unpark
};

// What the caller has to do now. Each call ends exactly once: by kExpire or kDrop, or by the caller's OnFinished.
struct Action {
  enum class Kind {
    kSend,   // send the request, and let `bytes` of the answer come with it. 0: only what says that it is ready. Report
             // OnReady, OnReceived, and OnFinished when the call has ended, however it ended; or OnUnsent
    kGrant,  // let `bytes` more of the answer come
    kStall,  // counted, nothing to do: granted bytes did not come in time, and their budget goes to the others. May
             // come again after progress
    kExpire,  // ended: the block's deadline passed while the call waited; nothing was sent
    kDrop,    // ended: cancelled while it waited; nothing was sent
    kAbort,  // the block was cancelled while the call was out, or its deadline passed before anything of the answer was
             // granted: cancel the RPC; OnFinished still follows
  };
  Kind kind;
  CallId call;
  uint64_t tag;
  int64_t bytes = 0;  // kSend: 0 or more, kMaxResponseBytes for unscheduled. kGrant: 1 or more. A WINDOW_UPDATE (RFC
                      // 9113, section 6.9) of so many bytes beyond the window that streams begin with
  friend bool operator==(const Action&, const Action&) = default;
};

// How a call in flight ended: its whole answer is here (or an error that says that there is none), or anything else: an
// abort, a deadline, a lost connection. What an aborted call was granted and has not received may still arrive, so its
// charge comes back only after a round trip and the time that a full buffer takes to drain (at once where there is no
// budget).
enum class CallEnd { kArrived, kAborted };

// A part of the link's budget, lent by whoever divides it among several processes. See docs/sharing.md.
struct BudgetLease {
  int64_t bytes = 0;                   // that may be in flight, 0 or more; 0: nothing leaves
  TimePoint until = TimePoint::max();  // from then on 0
  int64_t link_bytes = 0;              // the whole budget of the link; at least 1, and at least `bytes`
  int64_t plan_bytes = 0;              // that answers are planned for, while `bytes` comes and goes; 0 to link_bytes
  // What costs more than `bytes` goes alone, as with a budget. Otherwise it waits for a larger lease: what others hold
  // is in flight, too.
  bool may_exceed = false;
};

// What the schedule wants of the link and what it takes of it at one moment.
struct LinkDemand {
  int64_t limit_bytes = 0;      // that may be in flight now
  int64_t demand_bytes = 0;     // what is still to come of all calls that have not ended, parked ones apart
  int64_t in_flight_bytes = 0;  // what may be in the network, headers included that may come at any moment
  int64_t need_bytes = 0;       // a lease that lets the next call come, headers of stragglers included; 0: none waits
  int64_t received_bytes = 0;   // of answers, since the start, in units of the budget
  BlockId oldest_block = 0;     // of those that have not ended; 0: there is none
  TimePoint oldest_since;       // when it was submitted
};

// What the schedule holds at one moment; submitted = waiting + ungranted + in_flight + ended.
struct ScheduleState {
  int64_t budget_bytes = 0;      // the largest int64_t for unscheduled
  int64_t plan_bytes = 0;        // a grant costs a third of this at most; the budget, where no lease says otherwise
  int64_t in_flight_bytes = 0;   // charged, in units of the budget; aborted calls that still drain included
  int64_t in_flight_calls = 0;   // sent, and something of the answer was granted, or there is nothing to grant
  int64_t ungranted_calls = 0;   // grants: sent without a grant, and ready or not
  int64_t straggling_calls = 0;  // grants: of those, not ready for so long that they no longer count in the window
  int64_t grant_window = 0;      // grants: the most that may be out without a grant, stragglers apart
  int64_t waiting_calls = 0;     // parked ones included
  int64_t parked_calls = 0;
  int64_t blocks = 0;  // not ended
  int64_t submitted_calls = 0;
  int64_t ended_calls = 0;
};

// The schedule of one bottleneck link: a state machine that takes events with their time and appends the actions that
// follow. One a link, for all fan-outs that come in over it. Not thread-safe: the owner locks.
//
// Every event first does what was due by its `now`, so a late timer never lets a call leave after its deadline. A `now`
// before that of the last event counts as that one: threads that read the clock before they take the lock may be
// overtaken. Only actions of an event that returned OK (or returns nothing) are appended.
//
// What is granted and has not been received may be in the port buffer: this is what a call is charged for, byte by
// byte. At every admission all charges fit the budget, or one call is alone. Nothing is revoked, since a granted byte
// cannot be taken back; a smaller budget only drains. Charges exceed the budget only after a stall, which is counted.
//
// Every discipline is the same admission, first block first, and in a block first call first (batches deal it into its
// slots): a request leaves when its time has come (slots: batches only) and the bytes that come with it fit what is
// left of the budget. It is not overtaken. In rolling and batches all that is expected of the answer comes with the
// request; rolling sends an answer that costs more than the budget in parts.
//
// Grants admit twice: a request leaves while the window is open, in the same order; its answer is granted when it is
// ready and fits, those of the oldest block first, then first ready first. A call that is not ready holds up nobody. An
// answer that costs more than a third of the budget is granted in parts, and smaller ones overtake it. An answer that
// was held for 3 s goes first. Every answer that is not ready may send its headers at any moment, so room for them is
// kept beside what is granted. While answers are ready within about a round trip, or all that is asked for fits a third
// of the budget, requests leave early, with their grants; early bytes together take a third of the budget at most,
// since nothing but DATA or the end of the call frees them. In the other disciplines what an answer has beyond the
// bytes that came with its request is granted by the same rules, except in unscheduled. See docs/scheduling.md.
class LinkSchedule {
 public:
  struct Options {
    LinkProfile profile;
    Discipline discipline = Discipline::kGrants;
    std::optional<int64_t> budget_bytes;  // at least 1; default: the buffer of the profile
    int64_t queue_limit = 65536;          // calls that may wait; at least 1
    // Granted bytes of which none have come so long after they could have are stalled. Above 0.
    absl::Duration stall_timeout = absl::Milliseconds(300);
    // What framing takes of a part of an answer, so that the part fills whole packets; at least 0. An HTTP/2 frame
    // header is 9 bytes (RFC 9113, section 4.1); TLS adds 22 a record: 31.
    int64_t record_overhead_bytes = 9;
  };
  // InvalidArgument for a profile or option outside of its bounds.
  static absl::StatusOr<LinkSchedule> Create(const Options& options);

  LinkSchedule(LinkSchedule&&) noexcept;
  LinkSchedule& operator=(LinkSchedule&&) noexcept;
  ~LinkSchedule();

  // Queues a block of calls. ResourceExhausted when the queue has no room for all of them now, InvalidArgument when it
  // never will have, or a size is out of bounds, or there is no call; DeadlineExceeded when the deadline is not after
  // `now`. After an error nothing has changed. TimePoint::max() is no deadline. `ids`, where given, takes the calls'
  // ids, in the order of `calls`, so that those that wait can be named.
  absl::StatusOr<BlockId> Submit(TimePoint now, absl::Span<const CallRequest> calls, TimePoint deadline,
                                 std::vector<Action>& actions, std::vector<CallId>* ids = nullptr);

  // Adds one call (a retry, a hedge) to a block that has not ended, at that block's place in the queue, behind its own
  // waiting calls; in batches it gets one more slot. A block ends with its last call, so add a retry before OnFinished
  // of the call that it replaces. Not held to the queue limit: its block was let in already. NotFound when the block
  // has ended, Cancelled or DeadlineExceeded when it only waits for its calls in flight, InvalidArgument for a size out
  // of bounds. After an error nothing has changed.
  absl::StatusOr<CallId> Add(TimePoint now, BlockId block, CallRequest call, std::vector<Action>& actions);

  // A block of one call that leaves ahead of all that waits as soon as all of its bytes fit, and is charged for them
  // from then on: what a connection receives before its first answer, such as TCP and TLS handshakes (192 bytes to 6
  // KB). Not held to the queue limit, and by no slots. Otherwise as Submit.
  absl::StatusOr<BlockId> SubmitAhead(TimePoint now, CallRequest call, TimePoint deadline, std::vector<Action>& actions,
                                      CallId* id = nullptr);

  // The worker of a waiting call cannot be sent to for now (no connection, no stream free), or can be again. A parked
  // call counts as waiting, expires and is dropped like one, and blocks nobody. Unparked, it goes to the end of its
  // block's waiting calls; in batches it gets one more slot. Ignored in any other state.
  void Park(TimePoint now, CallId call, std::vector<Action>& actions);
  void Unpark(TimePoint now, CallId call, std::vector<Action>& actions);

  // kSend could not be carried out, or the worker has said that it never looked at the request (REFUSED_STREAM,
  // GOAWAY): all of the call's charge is released at once, and the call is parked; it expires at once where its block's
  // deadline has passed. After kAbort the charge is released, and OnFinished still has to follow.
  void OnUnsent(TimePoint now, CallId call, std::vector<Action>& actions);

  // The length prefix of a message is here, so exactly so many bytes have still to come, beyond those that have come;
  // for a stream the caller adds the next prefix. What of them is granted already needs no grant. May come several
  // times for a stream, and after kSend with bytes. Ignored for calls that are not out; out of bounds: the nearest
  // bound of 0 to kMaxResponseBytes.
  void OnReady(TimePoint now, CallId call, int64_t remaining_bytes, std::vector<Action>& actions);

  // So many bytes of DATA have come, beyond the first prefix: the charge falls at once, and while granted bytes are
  // outstanding their time to stall starts again. Bytes that came without a grant (the spare byte of a stream's window)
  // are made up for by the next grant, which then is larger by them. Ignored for calls that are not out, and below 1.
  void OnReceived(TimePoint now, CallId call, int64_t bytes, std::vector<Action>& actions);

  // A block ends by itself when all of its calls have. Unknown calls and blocks are ignored: they ended before. Cancel
  // and CancelCall may come twice; each call that was sent gets one kAbort, each that waits one kDrop. A block of which
  // calls were cancelled one by one goes on.
  void OnFinished(TimePoint now, CallId call, CallEnd end, std::vector<Action>& actions);
  void Cancel(TimePoint now, BlockId block, std::vector<Action>& actions);
  void CancelCall(TimePoint now, CallId call, std::vector<Action>& actions);

  // At or after NextTimer(): slots that have come, deadlines that have passed, aborted calls that have drained, granted
  // bytes that have stalled, stragglers that leave their places in the window.
  void OnTimer(TimePoint now, std::vector<Action>& actions);
  TimePoint NextTimer() const;  // TimePoint::max() when there is nothing to wait for

  // InvalidArgument below 1 byte. Admits at once what a larger budget lets through. Blocks that batches has dealt keep
  // their slots. Unscheduled takes note of nothing.
  absl::Status SetBudget(TimePoint now, int64_t budget_bytes, std::vector<Action>& actions);

  // The same for a part of the budget that is lent. InvalidArgument for a field out of bounds.
  absl::Status SetLease(TimePoint now, const BudgetLease& lease, std::vector<Action>& actions);
  // The link has another profile; budget_bytes changes nothing, SetBudget does. Calls that are queued or out keep the
  // charge that they have until something of them is granted or received. InvalidArgument as Create, and for another
  // discipline or stall_timeout; then nothing has changed.
  absl::Status Reconfigure(TimePoint now, const Options& options, std::vector<Action>& actions);

  ScheduleState State() const;
  LinkDemand Demand(TimePoint now) const;
  const Options& options() const;

 private:
  explicit LinkSchedule(std::unique_ptr<ScheduleMachine> machine);
  std::unique_ptr<ScheduleMachine> machine_;
};

}  // namespace sluice
