#pragma once

#include <string>
#include <vector>

#include "tools/sluice_plan/sizing.h"
#include "tools/sluice_plan/sweep.h"

namespace sluice {

// Says in plain words whether this read has the incast problem, what limits the slots, and which N or SRU size near it
// does better.
std::string Advice(const Sizing& sizing);

// The same of a sweep: where a block waits for a timeout without a schedule, how bad that is, where the teeth of the
// batches are, and what a closed loop (grants, rolling) reaches. `rows` are not empty.
std::string SweepAdvice(const std::string& swept, const std::vector<SweepRow>& rows);

}  // namespace sluice
