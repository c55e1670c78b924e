#pragma once

namespace sluice {

// A response that is ready waits for this while nothing that was granted is still to come.
enum class HeldFor {
  kNothing,  // it does not wait
  kGrant,    // the schedule has not granted the next bytes
  kRoom,     // its owner has no room for them, and the schedule is not asked
};

}  // namespace sluice
