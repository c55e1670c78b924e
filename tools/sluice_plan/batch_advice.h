#pragma once

#include <string>
#include <vector>

#include "tools/sluice_plan/sizing.h"
#include "tools/sluice_plan/sweep.h"

namespace sluice {

// Explains in plain words the limit of the slots of `batches`, and which N or SRU size near this one suits them better.
std::string BatchAdvice(const Sizing& sizing);

// The best value of a sweep for `batches`, and its troughs. `rows` are not empty.
std::string SweepBatchAdvice(const std::vector<SweepRow>& rows);

}  // namespace sluice
