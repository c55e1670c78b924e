#include "lib/proxy/held_response.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// When a message arrives packet by packet, forward at least this much at a time: each write wakes the client, and it
// cannot use a part of a message.
constexpr int64_t kMinPartBytes = 16 << 10;

}  // namespace

void HeldResponse::CountUnsent(int64_t bytes, TimePoint now) {
  if (bytes < holder_.bytes() || holder_.bytes() == 0) stuck_since_ = bytes == 0 ? TimePoint::max() : now;
  held_.Count(holder_, bytes, now);
}

void HeldResponse::CountAsked(int64_t bytes) {
  // After the call has ended, the proxy may have been destroyed.
  if (bytes != asked_bytes_) held_.CountAsked(group_, bytes - std::exchange(asked_bytes_, bytes));
}

// When the held bytes reach the bound, each call still gets its share at a time: calls whose clients read continue.
int64_t HeldResponse::RoomBytes() const {
  return held_.full(group_) ? held_.share_bytes() : max_bytes_;
}

int64_t HeldResponse::WantedBytes(int64_t unsent_bytes) const {
  return std::max<int64_t>(RoomBytes() - unsent_bytes, 0);
}

// Waiting bytes take at most half of the room, so that the rest is still requested from the worker, and arrives.
bool HeldResponse::MayWaitForMore(int64_t unsent_bytes) const {
  return unsent_bytes < std::min(kMinPartBytes, RoomBytes() / 2);
}

}  // namespace sluice
