#include "lib/cli/link_log.h"

#include "lib/cli/logging.h"

namespace sluice {

void LogBudget(int64_t before_bytes, const BudgetStep& step) {
  Log(LogLevel::kInfo, "budget",
      {{"decision", BudgetDecisionName(step.decision)},
       {"reason", step.reason},
       {"from", before_bytes},
       {"to", step.state.budget_bytes},
       {"ceiling", step.state.ceiling_bytes}});
}

void LogShare(const absl::Status& state) {
  if (state.ok()) return Log(LogLevel::kInfo, "the budget of the link is leased");
  Log(LogLevel::kWarning, "no lease of the shared link; its safe share is used", {{"reason", state}});
}

}  // namespace sluice
