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
//                worker until it is granted, that is until it fits the budget
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

// One call that the caller wants made: how large the answer will be on the application's side (SRU and RPC framing), 0
// to kMaxResponseBytes (of sluice/plan.h), and a word of the caller's own that comes back with every action. An empty
// answer still costs a packet.
struct CallRequest {
  int64_t response_bytes = 0;
  uint64_t tag = 0;
  bool estimated = false;  // response_bytes is a guess; with grants, the worker is asked before the answer may come
};

// What the caller has to do now. Each call ends exactly once: by kExpire or kDrop, or by the caller's OnFinished.
struct Action {
  enum class Kind {
    kSend,  // send the request; report OnFinished when the call has ended, however it ended. Grants: OnReady before it
    kSendGranted,  // grants: send the request, and let the answer come as soon as it can: all that is asked for fits
    kGrant,        // let the answer come; it was ready
    kStall,   // counted, nothing to do: a granted answer did not come in time, and its budget goes to the others. May
              // come again after progress
    kExpire,  // ended: the block's deadline passed while the call waited; nothing was sent
    kDrop,    // ended: cancelled while it waited; nothing was sent
    kAbort,  // the block was cancelled while the call was out, or its deadline passed before the grant: cancel the RPC;
             // OnFinished still follows
  };
  Kind kind;
  CallId call;
  uint64_t tag;
  friend bool operator==(const Action&, const Action&) = default;
};

// How a call in flight ended: its whole answer is here (or an error that says that there is none), or anything else: an
// abort, a deadline, a lost connection. What an aborted call had on the way may still arrive, so its share of the
// budget comes back only after a round trip and the time that a full buffer takes to drain (at once where there is no
// budget).
enum class CallEnd { kArrived, kAborted };

// A part of the link's budget, lent by whoever divides it among several processes. See docs/sharing.md.
struct BudgetLease {
  int64_t bytes = 0;                   // that may be in flight, 0 or more; 0: nothing leaves
  TimePoint until = TimePoint::max();  // from then on 0
  int64_t link_bytes = 0;              // the whole budget of the link; at least 1, and at least `bytes`
  int64_t plan_bytes = 0;              // that answers are planned for, while `bytes` comes and goes; 0 to link_bytes
  // An answer larger than `bytes` goes alone, as with a budget. Otherwise it waits for a larger lease: what others hold
  // is in flight, too.
  bool may_exceed = false;
};

// What the schedule wants of the link and what it takes of it at one moment.
struct LinkDemand {
  int64_t limit_bytes = 0;      // that may be in flight now
  int64_t demand_bytes = 0;     // what all calls that have not ended cost together
  int64_t in_flight_bytes = 0;  // what may be in the network, headers included that may come at any moment
  int64_t need_bytes = 0;       // a lease that lets the next call come, headers of stragglers included; 0: none waits
  int64_t received_bytes = 0;   // of answers that came, since the start, in units of the budget
  BlockId oldest_block = 0;     // of those that have not ended; 0: there is none
  TimePoint oldest_since;       // when it was submitted
};

// What the schedule holds at one moment; submitted = waiting + ungranted + in_flight + ended.
struct ScheduleState {
  int64_t budget_bytes = 0;      // the largest int64_t for unscheduled
  int64_t plan_bytes = 0;        // three answers should fit this; the budget, where no lease says something else
  int64_t in_flight_bytes = 0;   // in units of the budget, aborted calls that still drain included
  int64_t in_flight_calls = 0;   // granted, where there are grants
  int64_t ungranted_calls = 0;   // grants: sent, and ready or not
  int64_t straggling_calls = 0;  // grants: of those, not ready for so long that they no longer count in the window
  int64_t grant_window = 0;      // grants: as many may be out without a grant, stragglers apart
  int64_t waiting_calls = 0;
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
// Every discipline is the same admission, first block first, and in a block first call first (batches deal it into its
// slots): a call leaves when its time has come (slots: batches only) and its cost fits what is left of the budget. A
// call that does not fit is not overtaken. Nothing is revoked; a smaller budget only drains. A response larger than the
// budget goes when nothing else is in flight.
//
// Grants admit twice: a request leaves while the window is open, in the same order; its answer is granted when it is
// ready and fits, those of the oldest block first, then first ready first. A call that is not ready holds up nobody.
// Every answer that is not ready may send its headers at any moment, so room for them is kept beside what is granted.
// Where all calls that have not ended would fit a third of the budget, there is nothing to hold back, and a request of
// which the size is certain leaves with its grant. See docs/scheduling.md.
class LinkSchedule {
 public:
  struct Options {
    LinkProfile profile;
    Discipline discipline = Discipline::kGrants;
    std::optional<int64_t> budget_bytes;  // at least 1; default: the buffer of the profile
    int64_t queue_limit = 65536;          // calls that may wait; at least 1
    // What one call can have in the network at once, however large its answer is; at least 1. Set it where that is
    // bounded, for example by the receive window of its connection. Unscheduled takes no note of it.
    std::optional<int64_t> max_in_flight_per_call_bytes;
    // Grants: a granted answer that has not come so long after it could have is stalled. Above 0.
    absl::Duration stall_timeout = absl::Milliseconds(300);
  };
  // InvalidArgument for a profile or option outside of its bounds.
  static absl::StatusOr<LinkSchedule> Create(const Options& options);

  LinkSchedule(LinkSchedule&&) noexcept;
  LinkSchedule& operator=(LinkSchedule&&) noexcept;
  ~LinkSchedule();

  // Queues a block of calls. ResourceExhausted when the queue has no room for all of them now, InvalidArgument when it
  // never will have, or a size is out of bounds, or there is no call; DeadlineExceeded when the deadline is not after
  // `now`. After an error nothing has changed. TimePoint::max() is no deadline.
  absl::StatusOr<BlockId> Submit(TimePoint now, absl::Span<const CallRequest> calls, TimePoint deadline,
                                 std::vector<Action>& actions);

  // Adds one call (a retry, a hedge) to a block that has not ended, at that block's place in the queue, behind its own
  // waiting calls; in batches it gets one more slot. A block ends with its last call, so add a retry before OnFinished
  // of the call that it replaces. Not held to the queue limit: its block was let in already. NotFound when the block
  // has ended, Cancelled or DeadlineExceeded when it only waits for its calls in flight, InvalidArgument for a size out
  // of bounds. After an error nothing has changed.
  absl::StatusOr<CallId> Add(TimePoint now, BlockId block, CallRequest call, std::vector<Action>& actions);

  // Grants: the answer is ready at its worker, its headers are here. They may have told its size, which then takes the
  // place of the one expected; one out of bounds is taken for the nearest bound. Ignored elsewhere, and for a call that
  // has ended.
  void OnReady(TimePoint now, CallId call, std::optional<int64_t> response_bytes, std::vector<Action>& actions);

  // A part of the answer has arrived, and so much is still expected: the call is charged for that from now on, and its
  // time to stall starts again. More than it was charged for, or anything after it had stalled, is a debit: nothing
  // else is let through until it fits again. Only for calls in flight that were not aborted; ignored for others. Out of
  // bounds: the nearest bound.
  void OnProgress(TimePoint now, CallId call, int64_t remaining_bytes, std::vector<Action>& actions);

  // A block ends by itself when all of its calls have. Unknown calls and blocks are ignored: they ended before. Cancel
  // and CancelCall may come twice; each call that was sent gets one kAbort, each that waits one kDrop. A block of which
  // calls were cancelled one by one goes on.
  void OnFinished(TimePoint now, CallId call, CallEnd end, std::vector<Action>& actions);
  void Cancel(TimePoint now, BlockId block, std::vector<Action>& actions);
  void CancelCall(TimePoint now, CallId call, std::vector<Action>& actions);

  // At or after NextTimer(): slots that have come, deadlines that have passed, aborted calls that have drained, granted
  // answers that have stalled, stragglers that leave their places in the window.
  void OnTimer(TimePoint now, std::vector<Action>& actions);
  TimePoint NextTimer() const;  // TimePoint::max() when there is nothing to wait for

  // InvalidArgument below 1 byte. Admits at once what a larger budget lets through. Blocks that batches has dealt keep
  // their slots. Unscheduled takes note of nothing.
  absl::Status SetBudget(TimePoint now, int64_t budget_bytes, std::vector<Action>& actions);

  // The same for a part of the budget that is lent. InvalidArgument for a field out of bounds.
  absl::Status SetLease(TimePoint now, const BudgetLease& lease, std::vector<Action>& actions);
  // The link has another profile, or calls other bounds; budget_bytes changes nothing, SetBudget does. Calls that are
  // queued or out keep the cost that they have. InvalidArgument as Create, and for another discipline or stall_timeout;
  // then nothing has changed.
  absl::Status Reconfigure(TimePoint now, const Options& options, std::vector<Action>& actions);

  ScheduleState State() const;
  LinkDemand Demand(TimePoint now) const;
  const Options& options() const;

 private:
  explicit LinkSchedule(std::unique_ptr<ScheduleMachine> machine);
  std::unique_ptr<ScheduleMachine> machine_;
};

}  // namespace sluice
