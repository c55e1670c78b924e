#pragma once

#include <algorithm>
#include <chrono>

#include "sluice/time_point.h"

#include "absl/time/time.h"

namespace sluice {

// The clock of this layer: it is monotonic, and the schedule's times are on it. The layers below read no clock.
inline TimePoint Now() {
  return std::chrono::steady_clock::now();
}

// The point in time that is `timeout` after `now`; an infinite timeout is a year.
inline TimePoint DeadlineAfter(TimePoint now, absl::Duration timeout) {
  constexpr absl::Duration kForever = absl::Hours(24 * 365);
  return now + absl::ToChronoNanoseconds(std::clamp(timeout, absl::ZeroDuration(), kForever));
}
inline TimePoint DeadlineAfter(absl::Duration timeout) {
  return DeadlineAfter(Now(), timeout);
}

}  // namespace sluice
