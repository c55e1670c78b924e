#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "sluice/link_profile.h"

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/sluice_calibrate/measurements.h"
#include "tools/sluice_calibrate/prober.h"

namespace sluice {

struct CalibrationOptions {
  int64_t max_in_flight_bytes = 2 << 20;          // the maximum in flight, and so the largest buffer that can be found
  absl::Duration time_limit = absl::Seconds(45);  // no new loop begins after it
  std::function<void(double share, const std::string& stage)> on_progress;  // may be null
};

// Measures, in this order: the path, timers, round trips, the rate of the bottleneck, and the buffer in front of it.
// The result contains reasons for missing measurements. Returns the errors of the prober.
absl::StatusOr<Measurements> Calibrate(Prober& prober, const CalibrationOptions& options);

// Returns a loop that keeps about `in_flight_bytes` in flight on a link of this rate; the rate is 0 if it is unknown.
ClosedLoop PlanLoop(int64_t in_flight_bytes, double rate_bytes_per_second, const LinkProfile& packets);

// Returns a profile with the path's packet sizes, and defaults otherwise.
LinkProfile PacketProfile(const PathFacts& path);

}  // namespace sluice
