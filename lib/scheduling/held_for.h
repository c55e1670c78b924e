#pragma once

namespace sluice {

// The reason why a ready response waits although all of its granted bytes have arrived.
enum class HeldFor {
  kNothing,  // it does not wait
  kGrant,    // the schedule has not granted the next bytes
  kRoom,     // its owner has no room for the next bytes, and does not request a grant
};

}  // namespace sluice
