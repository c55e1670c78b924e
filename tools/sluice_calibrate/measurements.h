#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tools/sluice_calibrate/prober.h"

namespace sluice {

// Everything that one calibration has measured, before figures are made of it. A plain value.
struct Measurements {
  PathFacts path;
  TimerSamples timers;
  RoundTripSamples round_trips;
  std::vector<LoopSample> rate_loops;
  std::vector<LoopSample> buffer_loops;
  // Why there are none of these; empty if there are some.
  std::string no_rate;
  std::string no_buffer;
  std::vector<std::string> notes;
  absl::Duration elapsed;
};

}  // namespace sluice
