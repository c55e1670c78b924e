#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tools/sluice_plan/sweep.h"

namespace sluice {

// A number, a boolean, a text, or nothing.
using PlanValue = std::variant<std::monostate, double, bool, std::string>;

// The fields of one read for --json and --csv: the keys of docs/internals/model.md, in its order. Without a schedule of
// slots, n, batches and goodput_bps are 0, block_time_s is nothing, and `reason` has the reason.
std::vector<std::pair<std::string, PlanValue>> PlanFields(const Sizing& sizing);

std::string PlanJson(const Sizing& sizing);

// Returns the values below a line of keys (RFC 4180, except for line ends).
std::string PlanCsv(const std::vector<SweepRow>& rows);

}  // namespace sluice
