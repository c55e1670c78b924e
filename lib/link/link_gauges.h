#pragma once

#include "lib/link/link_loop.h"
#include "lib/link/link_metrics.h"

namespace sluice {

// Fills the gauges from the schedule and the workers. The plan is for a block like the last one submitted.
LinkGauges GaugesOf(LinkLoop& loop);

}  // namespace sluice
