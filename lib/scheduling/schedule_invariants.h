#pragma once

#include <algorithm>
#include <cstdint>

#include "lib/scheduling/breaches.h"

namespace sluice {

// The conditions that LinkSchedule checks. docs/internals/scheduling.md, "What always holds", has the same list, and
// schedule_invariants_test.cc compares the two. The rules of that page that are not sums are checked by tests alone.

// The sums of a schedule after an event. Bytes are in units of the budget.
struct ScheduleSums {
  int64_t submitted_calls = 0;
  int64_t ended_calls = 0;
  int64_t waiting_calls = 0;  // including held and parked ones
  int64_t sent_calls = 0;     // like the next two, by the lists of the blocks
  int64_t ready_calls = 0;
  int64_t in_flight_calls = 0;
  int64_t listed_sent_calls = 0;  // by SentCalls, like the next two
  int64_t straggling_calls = 0;
  int64_t silent_calls = 0;
  int64_t blocks = 0;
  int64_t remaining_bytes = 0;     // cost of the bytes still to come
  int64_t ready_bytes = 0;         // bytes that are ready at workers and not granted; not cost
  int64_t large_header_bytes = 0;  // room for large headers in addition to the usual room
  int64_t silent_header_bytes = 0;
  bool has_turns = false;  // a response waits for a grant
  bool draining = false;   // an aborted call is still charged
  int64_t charged_bytes = 0;
  // Parts of charged_bytes.
  int64_t early_bytes = 0;
  int64_t handshake_bytes = 0;
  int64_t slow_bytes = 0;

  int64_t out_calls() const { return sent_calls + ready_calls + in_flight_calls; }
};

// A grant, with or without a request.
struct GrantSums {
  bool limited = true;  // false: unscheduled
  bool alone = false;   // nothing else was in flight: Budget::idle
  int64_t charged_before_bytes = 0;
  int64_t charged_bytes = 0;
  int64_t room_bytes = 0;  // that may be charged: Budget::room_bytes
};

// Inline: a call would first write all sums to memory.
[[gnu::always_inline]] inline void CheckSums(const ScheduleSums& s, Breaches& breaches) {
  SLUICE_HOLDS(breaches, s.early_bytes >= 0 && s.handshake_bytes >= 0 && s.slow_bytes >= 0);
  SLUICE_HOLDS(breaches, s.early_bytes + s.handshake_bytes + s.slow_bytes <= s.charged_bytes);
  SLUICE_HOLDS(breaches, s.submitted_calls == s.waiting_calls + s.out_calls() + s.ended_calls);
  SLUICE_HOLDS(breaches, (s.blocks == 0) == (s.waiting_calls + s.out_calls() == 0));
  SLUICE_HOLDS(breaches, s.listed_sent_calls == s.sent_calls);
  SLUICE_HOLDS(breaches, s.straggling_calls >= 0 && s.straggling_calls <= s.sent_calls);
  SLUICE_HOLDS(breaches, s.silent_calls >= 0 && s.silent_calls <= s.in_flight_calls);
  SLUICE_HOLDS(breaches, s.large_header_bytes >= 0 && s.silent_header_bytes >= 0);
  SLUICE_HOLDS(breaches, s.sent_calls + s.silent_calls > 0 || s.large_header_bytes == 0);
  SLUICE_HOLDS(breaches, s.remaining_bytes >= 0 && s.ready_bytes >= 0);
  SLUICE_HOLDS(breaches, s.blocks > 0 || s.remaining_bytes == 0);
  SLUICE_HOLDS(breaches, s.out_calls() > 0 || s.ready_bytes == 0);
  SLUICE_HOLDS(breaches, s.out_calls() > 0 || !s.has_turns);
  SLUICE_HOLDS(breaches, s.out_calls() > 0 || s.draining || s.charged_bytes == 0);
  SLUICE_HOLDS(breaches, s.out_calls() > 0 || s.early_bytes + s.handshake_bytes + s.slow_bytes == 0);
}

[[gnu::always_inline]] inline void CheckGrant(const GrantSums& s, Breaches& breaches) {
  SLUICE_HOLDS(breaches, !s.limited || s.alone || s.charged_bytes <= std::max(s.room_bytes, s.charged_before_bytes));
}

}  // namespace sluice
