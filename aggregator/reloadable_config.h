#pragma once

#include "sluice/v1/config.pb.h"

#include "absl/status/status.h"

namespace sluice {

// Returns FailedPrecondition that names the fields, with their old and new values, if `after` cannot take the place of
// `before` in an aggregator that runs.
absl::Status CheckReloadable(const v1::AggregatorConfig& before, const v1::AggregatorConfig& after);

}  // namespace sluice
