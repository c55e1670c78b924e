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
  int64_t max_in_flight_bytes = 2 << 20;          // never more, so the largest buffer that can be found
  absl::Duration time_limit = absl::Seconds(45);  // after it no new loop begins
  std::function<void(double share, const std::string& stage)> on_progress;  // may be null
};

// Measures, in this order: the path, timers, round trips, the rate of the bottleneck, and the buffer in front of it.
// The result says what could not be measured. An error is one of the prober.
absl::StatusOr<Measurements> Calibrate(Prober& prober, const CalibrationOptions& options);

// Returns a loop that keeps about so much in flight on a link of that rate; 0 if the rate is not known yet.
ClosedLoop PlanLoop(int64_t in_flight_bytes, double rate_bytes_per_second, const LinkProfile& packets);

// Returns the model of the path's packets; everything else has its default.
LinkProfile PacketProfile(const PathFacts& path);

}  // namespace sluice
