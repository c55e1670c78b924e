#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tools/sluice_calibrate/prober.h"

namespace sluice {

// All measurements of one calibration, before figures are computed from them. A plain value.
struct Measurements {
  PathFacts path;
  TimerSamples timers;
  RoundTripSamples round_trips;
  std::vector<LoopSample> rate_loops;
  std::vector<LoopSample> buffer_loops;
  // The reason why these loops are missing; empty if there are some.
  std::string no_rate;
  std::string no_buffer;
  std::vector<std::string> notes;
  absl::Duration elapsed;
};

}  // namespace sluice
