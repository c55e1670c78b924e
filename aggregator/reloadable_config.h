#pragma once

#include "sluice/v1/config.pb.h"

#include "absl/status/status.h"

namespace sluice {

// Returns FailedPrecondition with the fields, and their old and new values, if `after` cannot replace `before` in a
// running aggregator.
absl::Status CheckReloadable(const v1::AggregatorConfig& before, const v1::AggregatorConfig& after);

}  // namespace sluice
