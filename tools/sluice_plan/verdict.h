#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tools/sluice_plan/sizing.h"
#include "tools/sluice_plan/sweep.h"

namespace sluice {

// Not needed: all responses fit the port buffer together. Needed: they do not, and grants reach at least 5 % more
// goodput than the model of collapse expects without a schedule. Perhaps: they do not, and that model expects few
// timeouts.
enum class Need { kNotNeeded, kPerhaps, kNeeded };

Need JudgeNeed(const Sizing& sizing);
const char* NeedName(Need need);  // "not needed", "may be needed", "needed"

inline constexpr absl::string_view kCannotSay = "collapse is possible, this model cannot say when";

// Why there is no goodput without a schedule: "660 KiB more than the buffer: collapse is possible, this model cannot
// say when". Empty if there is one.
std::string WhyUnknown(const Sizing& sizing);

// Whether the model of collapse expects most blocks to wait for a TCP timeout. It claims no more.
bool CollapseIsLikely(const Sizing& sizing);

// Two lines: whether Sluice is needed, with the goodput today and with Sluice, and the reason.
std::string Verdict(const Sizing& sizing);

// The same for a sweep: the values of each need, and the ranges of both goodputs. `rows` are not empty.
std::string SweepVerdict(const std::string& swept, const std::vector<SweepRow>& rows);

// A line: the command that answers what is open.
std::string NextStep(Need need);

}  // namespace sluice
