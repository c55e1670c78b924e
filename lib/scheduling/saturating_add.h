#pragma once

#include <chrono>

#include "sluice/time_point.h"

namespace sluice {

// `duration` must not be negative. The sum may exceed every clock on a link of a few bytes per second.
inline TimePoint SaturatingAdd(TimePoint time, std::chrono::nanoseconds duration) {
  return time > TimePoint::max() - duration ? TimePoint::max() : time + duration;
}

}  // namespace sluice
