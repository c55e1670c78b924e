#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>

#include "sluice/link_schedule.h"

namespace sluice {

struct QueuedBlock;

using ListHook = boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>>;

// Grants: of the calls that may straggle, and of those that may stall.
struct SentTag;
struct StallTag;
using SentHook = boost::intrusive::list_base_hook<boost::intrusive::tag<SentTag>>;
using StallHook = boost::intrusive::set_base_hook<boost::intrusive::tag<StallTag>>;

// One call that has not ended. It is in exactly one list: of its block, by its phase, or the free ones of the table.
struct Call : ListHook, SentHook, StallHook {
  // Grants: sent, then ready, then granted, which is in flight. Elsewhere a call in flight is one that was sent.
  enum class Phase : uint8_t { kFree, kWaiting, kSent, kReady, kInFlight };
  static constexpr size_t kPhases = 5;

  CallId id;
  Phase phase = Phase::kFree;
  bool estimated = false;     // its size is a guess
  bool opens_slot = false;    // batches: the first call of its batch
  bool straggles = false;     // grants, sent: for too long to count in the window
  bool aborted = false;       // the caller was told; its OnFinished is all that is missing
  int64_t answer_bytes = 0;   // of the port buffer, were the whole answer there at once; at least 1
  int64_t cost_bytes = 0;     // of the budget: what can be there at once; at least 1
  int64_t charged_bytes = 0;  // in flight: what is to be released; less than the cost when aborted early or stalled
  TimePoint sent_at;          // grants
  TimePoint stalls_at;        // grants, in flight
  uint64_t tag = 0;
  QueuedBlock* block = nullptr;
};

using CallList = boost::intrusive::list<Call, boost::intrusive::constant_time_size<false>>;

// The calls that have not ended. One a schedule, not thread-safe. Addresses hold until Release. A slot is used again,
// so a steady state allocates nothing; the table never shrinks.
class CallTable {
 public:
  Call& Acquire();
  void Release(Call& call);  // not in a list
  Call* Find(CallId id);     // null when the call has ended

 private:
  std::deque<Call> calls_;
  CallList free_;
};

}  // namespace sluice
