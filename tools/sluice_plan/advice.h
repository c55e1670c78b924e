#pragma once

#include <string>
#include <vector>

#include "tools/sluice_plan/sizing.h"
#include "tools/sluice_plan/sweep.h"

namespace sluice {

// Explains whether this read has the incast problem, what limits the slots, and which nearby N or SRU size performs
// better.
std::string Advice(const Sizing& sizing);

// Explains a sweep: where a block waits for a timeout without a schedule, and how severe that is; where the teeth of
// the batches are; and the goodput of a closed loop (grants, rolling). `rows` are not empty.
std::string SweepAdvice(const std::string& swept, const std::vector<SweepRow>& rows);

}  // namespace sluice
