#pragma once

#include <string>

#include "tools/sluice_plan/sizing.h"

namespace sluice {

// Returns one object with the keys of docs/model.md. If the slots are not applicable, n, batches and goodput_bps are 0,
// block_time_s is null, and there is a `reason`.
std::string PlanJson(const Sizing& sizing);

}  // namespace sluice
