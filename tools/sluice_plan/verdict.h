#pragma once

#include <string>
#include <vector>

#include "tools/sluice_plan/sizing.h"
#include "tools/sluice_plan/sweep.h"

namespace sluice {

// Not needed: all responses fit the port buffer together. Needed: grants reach at least 5 % more goodput than reads
// without a schedule. Perhaps: the buffer overflows, but the model of collapse expects few timeouts.
enum class Need { kNotNeeded, kPerhaps, kNeeded };

Need JudgeNeed(const Sizing& sizing);
const char* NeedName(Need need);  // "not needed", "may be needed", "needed"

// Two lines: whether Sluice is needed, with the goodput today and with Sluice, and the reason.
std::string Verdict(const Sizing& sizing);

// The same for a sweep: the values of each need, and the ranges of both goodputs. `rows` are not empty.
std::string SweepVerdict(const std::string& swept, const std::vector<SweepRow>& rows);

// A line: the command that answers what is open.
std::string NextStep(Need need);

}  // namespace sluice
