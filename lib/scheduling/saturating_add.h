#pragma once

#include <chrono>

#include "sluice/time_point.h"

namespace sluice {

// `duration` must not be negative. On a link of a few bytes per second, the sum may exceed the range of every clock.
inline TimePoint SaturatingAdd(TimePoint time, std::chrono::nanoseconds duration) {
  return time > TimePoint::max() - duration ? TimePoint::max() : time + duration;
}

inline TimePoint SaturatingSubtract(TimePoint time, std::chrono::nanoseconds duration) {
  return time < TimePoint::min() + duration ? TimePoint::min() : time - duration;
}

}  // namespace sluice
