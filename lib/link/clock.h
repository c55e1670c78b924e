#pragma once

#include <algorithm>
#include <chrono>

#include "sluice/link_schedule.h"

#include "absl/time/time.h"

namespace sluice {

// The one clock of this layer: monotonic, and that of the schedule's times. The layers below read none.
inline TimePoint Now() {
  return std::chrono::steady_clock::now();
}

// The point `timeout` from now; the end of time for an infinite one.
inline TimePoint DeadlineAfter(absl::Duration timeout) {
  constexpr absl::Duration kForever = absl::Hours(24 * 365);
  return Now() + absl::ToChronoNanoseconds(std::clamp(timeout, absl::ZeroDuration(), kForever));
}

}  // namespace sluice
