#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "tools/sluice_calibrate/prober.h"

namespace sluice {

// Sets timers of Boost.Asio on a thread of their own, as the library does, and waits for them: about a second.
// Cancelled: `interrupted` has said so.
absl::StatusOr<TimerSamples> MeasureTimerLateness(const std::function<bool()>& interrupted);

}  // namespace sluice
