#pragma once

#include "lib/link/link_core.h"
#include "lib/telemetry/aggregator_metrics.h"

namespace sluice {

// What the gauges show of the schedule and the workers, and the plan for a block like the last one that was submitted.
AggregatorGauges GaugesOf(LinkCore& core);

}  // namespace sluice
