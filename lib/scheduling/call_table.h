#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <deque>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>

#include "sluice/schedule.h"
#include "sluice/time_point.h"

#include "lib/scheduling/link_observer.h"
#include "lib/scheduling/schedule_events.h"

namespace sluice {

using ClassBits = std::bitset<TrafficClass::kMaxClasses>;  // one for each class of a schedule

struct QueuedBlock;
struct QueuedWorker;

using ListHook = boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>>;

// Hooks for lists and sets of calls. Sent and Early, with grants only: calls that may straggle, and calls that may be
// granted early. Stall: calls that may stall. Turn and Age: calls that wait at their worker, by turn and by the age of
// their block.
struct SentTag;
struct EarlyTag;
struct StallTag;
struct TurnTag;
struct AgeTag;
using SentHook = boost::intrusive::list_base_hook<boost::intrusive::tag<SentTag>>;
using EarlyHook = boost::intrusive::list_base_hook<boost::intrusive::tag<EarlyTag>>;
using StallHook = boost::intrusive::set_base_hook<boost::intrusive::tag<StallTag>>;
using TurnHook = boost::intrusive::set_base_hook<boost::intrusive::tag<TurnTag>>;
using AgeHook = boost::intrusive::set_base_hook<boost::intrusive::tag<AgeTag>>;

// The progress of a request, and of its response byte by byte.
struct CallProgress {
  bool straggles = false;         // out for too long to count in the window of grants
  bool aborted = false;           // kAbort was sent to the caller; only OnFinished is missing
  bool was_ready = false;         // the prefix of its first message has arrived
  bool silent = false;            // in flight, and no bytes are expected; counted by SentCalls
  bool unbounded = false;         // all of its messages may come without a grant: it left unscheduled
  bool unwanted = false;          // the caller has abandoned it, and its stream is still open
  bool stalled = false;           // outstanding bytes, except early ones, are no longer charged
  bool late = false;              // its early bytes did not come within a stall timeout, and are no longer charged
  int64_t header_wire_bytes = 0;  // bytes of headers before the response was ready; 0 once observed
  int64_t received_bytes = 0;     // bytes of DATA
  int64_t outstanding_bytes = 0;  // granted minus received; below 0 after bytes that came without a grant
  int64_t early_bytes = 0;        // part of the outstanding bytes: granted before the response was ready
  int64_t remaining_bytes = 0;    // missing bytes of messages whose prefix has arrived, granted or not
  TimePoint sent_at;
};

// One call that has not ended. It is in exactly one list: its block's list for its phase, or the free list of the
// table.
struct Call : ListHook, SentHook, EarlyHook, StallHook, TurnHook, AgeHook {
  // A call is in flight if part of its response was granted, or nothing is to be granted. Only grants have the phases
  // sent and ready. A held call waits until its worker has less than its share outstanding.
  enum class Phase : uint8_t { kFree, kParked, kHeld, kWaiting, kSent, kReady, kInFlight };
  static constexpr size_t kPhases = 7;
  enum class Turn : uint8_t { kNone, kWanted, kUnwanted };

  // Returns the bytes that are ready and not granted. Bytes that came without a grant are added, so that the next grant
  // restores the window.
  int64_t rest() const {
    const int64_t bytes = progress.remaining_bytes - progress.outstanding_bytes;
    return progress.was_ready && bytes > 0 ? bytes : 0;
  }
  bool out() const { return phase >= Phase::kSent; }
  bool turn_of_tunnel() const { return window_bytes > 0; }
  // Returns whether its response may be larger than the bytes that have been announced.
  bool unsized() const { return !progress.aborted && (!progress.was_ready || may_idle); }
  // Returns the bytes of the response that were granted or announced. A number that only grows, except that early bytes
  // which the response does not need drop out when it is ready.
  int64_t claimed() const {
    const int64_t more = progress.was_ready ? progress.remaining_bytes : progress.outstanding_bytes;
    return progress.received_bytes + (more > 0 ? more : 0);
  }

  CallId id;
  Phase phase = Phase::kFree;
  Turn turn = Turn::kNone;  // in GrantQueue
  // The order among the waiting calls of its block; since it was ready, the order among the ready messages.
  uint64_t place = 0;
  uint64_t queued = 0;      // the order in which calls were added to GrantQueue
  int rank = 0;             // in its block, by the rest of its message: see BlockOrder::RankOf
  bool opens_slot = false;  // batches: the first call of its batch
  bool may_idle = false;    // a stream: further messages may follow, and it gets no early bytes
  // Expected size of the response at its request; at least 1, since an empty response costs a packet.
  int64_t expected_bytes = 0;
  int64_t window_bytes = 0;  // above 0: the turn of a byte tunnel
  CallProgress progress;

  // Kept by Outstanding, in units of the budget.
  int64_t outstanding_cost = 0;     // cost of the outstanding bytes
  int64_t charged_bytes = 0;        // charge to release
  int64_t early_charged_bytes = 0;  // the early part of the charge
  int64_t owed_bytes = 0;           // cost of the outstanding bytes whose prefix has arrived
  int64_t late_bytes = 0;           // cost of early bytes that are late, and not charged
  int64_t asked_bytes = 0;          // cost of the bytes that are still to come, by the expected size before it is ready
  int64_t known_bytes = 0;          // the same once it is ready, and 0 before
  int64_t claimed_bytes = 0;        // cost of the bytes that were granted or announced
  int64_t ready_bytes = 0;          // rest() as counted in its block and its class; bytes, not cost
  int64_t header_bytes = 0;         // the usual room that is kept for its headers; kept by LiveCalls, like the next
  int64_t large_header_bytes = 0;   // the room in addition, if the headers of its worker are large
  bool counts_as_unsized = false;
  bool times_early = false;  // its stall timer runs for early bytes alone
  bool owes = false;         // bytes are granted and ready at the worker, stalled or not

  ObservedResponse observed;  // unscheduled

  TimePoint stalls_at;
  uint64_t tag = 0;
  QueuedBlock* block = nullptr;
  QueuedWorker* worker = nullptr;
};

using CallList = boost::intrusive::list<Call, boost::intrusive::constant_time_size<false>>;

// The calls that have not ended. There is one for each schedule. Not thread-safe. Addresses are valid until Release.
// Slots are reused, so a steady state allocates nothing; the table never shrinks.
class CallTable {
 public:
  Call& Acquire();
  void Release(Call& call);  // the call must not be in a list
  Call* Find(CallId id);     // null if the call has ended

 private:
  std::deque<Call> calls_;
  CallList free_;
};

}  // namespace sluice
