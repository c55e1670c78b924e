#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include <boost/intrusive/list.hpp>

#include "sluice/link_schedule.h"

namespace sluice {

struct QueuedBlock;

using ListHook = boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::normal_link>>;

// One call that has not ended. It is in exactly one list: of its block, by its phase, or the free ones of the table.
struct Call : ListHook {
  enum class Phase : uint8_t { kFree, kWaiting, kInFlight };

  CallId id;
  Phase phase = Phase::kFree;
  bool opens_slot = false;  // batches: the first call of its batch
  int64_t cost_bytes = 0;   // of the budget
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
