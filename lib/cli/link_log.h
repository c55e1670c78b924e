#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "sluice/invariant_breach.h"
#include "sluice/link.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

// For the on_invariant_breach of links and lease servers. Logs one line for each place of the source in ten minutes: a
// broken sum stays broken at every event.
std::function<void(const InvariantBreach&)> BreachLog();

// For SharedLinkOptions::on_state.
void LogLease(const absl::Status& state);

// Logs a warning if the budget is larger than the buffer of the port. The budget may be right: some switches give a
// port more than its share of the memory.
void WarnOfLargeBudget(int64_t budget_bytes, int64_t buffer_bytes);

// The same for a link whose buffer is known, and for the floor of its budget.
void WarnOfLargeBudget(const Link::Options& options);

// As Link::Create, with a link that logs the changes of its budget, the faults of its workers, and
// breached invariants.
absl::StatusOr<std::shared_ptr<Link>> CreateLoggedLink(Link::Options options);

}  // namespace sluice
