#include "lib/scheduling/call_table.h"

#include <cassert>

namespace sluice {

Call& CallTable::Acquire() {
  if (free_.empty()) {
    const auto slot = static_cast<uint32_t>(calls_.size());
    assert(slot == calls_.size());
    Call& call = calls_.emplace_back();
    call.id.slot = slot;
    return call;
  }
  // Reuse the slot that was released last, which is still in the cache.
  Call& call = free_.front();
  free_.pop_front();
  return call;
}

void CallTable::Release(Call& call) {
  ++call.id.generation;
  call.phase = Call::Phase::kFree;
  call.block = nullptr;
  call.worker = nullptr;
  call.place = 0;
  call.rank = 0;
  call.claimed_bytes = 0;
  call.progress = {};
  free_.push_front(call);
}

Call* CallTable::Find(CallId id) {
  if (id.slot >= calls_.size()) return nullptr;
  Call& call = calls_[id.slot];
  return call.id == id && call.phase != Call::Phase::kFree ? &call : nullptr;
}

}  // namespace sluice
