#include "lib/cli/link_log.h"

#include <cstdint>
#include <utility>

#include "sluice/budget_control.h"

#include "lib/cli/logging.h"

namespace sluice {
namespace {

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

}  // namespace

absl::StatusOr<std::shared_ptr<Link>> CreateLoggedLink(Link::Options options) {
  options.budget.on_change = LogBudget;
  if (options.share.has_value()) options.share->on_state = LogShare;
  return Link::Create(std::move(options));
}

}  // namespace sluice
