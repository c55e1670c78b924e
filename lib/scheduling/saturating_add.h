#pragma once

#include <chrono>

#include "sluice/link_schedule.h"

namespace sluice {

// `duration` is not negative. A link of a few bytes per second makes times that no clock reaches.
inline TimePoint SaturatingAdd(TimePoint time, std::chrono::nanoseconds duration) {
  return time > TimePoint::max() - duration ? TimePoint::max() : time + duration;
}

}  // namespace sluice
