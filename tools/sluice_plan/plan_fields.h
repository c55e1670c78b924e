#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tools/sluice_plan/sweep.h"

namespace sluice {

// A number, a truth, a text, or nothing.
using PlanValue = std::variant<std::monostate, double, bool, std::string>;

// What --json and --csv print of one read: the keys of docs/internals/model.md, in its order. Without a schedule of
// slots n, batches and goodput_bps are 0, block_time_s is nothing, and `reason` says why.
std::vector<std::pair<std::string, PlanValue>> PlanFields(const Sizing& sizing);

std::string PlanJson(const Sizing& sizing);

// With a line of keys above the values (RFC 4180, but for line ends).
std::string PlanCsv(const std::vector<SweepRow>& rows);

}  // namespace sluice
