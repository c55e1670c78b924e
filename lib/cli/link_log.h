#pragma once

#include <cstdint>

#include "sluice/budget_control.h"

#include "absl/status/status.h"

namespace sluice {

// What programs log of their link: for Link::BudgetOptions::on_change and SharedLink::on_state.
void LogBudget(int64_t before_bytes, const BudgetStep& step);
void LogShare(const absl::Status& state);

}  // namespace sluice
