#pragma once

#include <chrono>

namespace sluice {

// A point on the caller's monotonic clock. The state machines of Sluice receive it as an argument and read no clock.
using TimePoint = std::chrono::steady_clock::time_point;

}  // namespace sluice
