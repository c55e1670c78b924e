#pragma once

#include <chrono>

#include "sluice/link_schedule.h"

namespace sluice {

// The one clock of this layer: monotonic, and that of the schedule's times. The layers below read none.
inline TimePoint Now() {
  return std::chrono::steady_clock::now();
}

}  // namespace sluice
