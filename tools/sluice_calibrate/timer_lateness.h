#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "tools/sluice_calibrate/prober.h"

namespace sluice {

// Sets timers of Boost.Asio on a separate thread, as the library does, and waits for them for about a second. Returns
// Cancelled if `interrupted` returns true.
absl::StatusOr<TimerSamples> MeasureTimerLateness(const std::function<bool()>& interrupted);

}  // namespace sluice
