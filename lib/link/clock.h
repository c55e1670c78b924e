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

// The point `timeout` from `now`; for an infinite one it is a year away.
inline TimePoint DeadlineAfter(TimePoint now, absl::Duration timeout) {
  constexpr absl::Duration kForever = absl::Hours(24 * 365);
  return now + absl::ToChronoNanoseconds(std::clamp(timeout, absl::ZeroDuration(), kForever));
}
inline TimePoint DeadlineAfter(absl::Duration timeout) {
  return DeadlineAfter(Now(), timeout);
}

}  // namespace sluice
