#pragma once

#include <functional>

#include "sluice/v1/config.pb.h"

#include "absl/status/status.h"
#include "aggregator/aggregator_config.h"

namespace sluice {

// Returns FailedPrecondition that names the fields, with their old and new values, if `after` cannot take the place of
// `before` in an aggregator that runs.
absl::Status CheckReloadable(const v1::AggregatorConfig& before, const v1::AggregatorConfig& after);

// Hands the options of a config to `apply`, and sets the log level if that took them. Returns the errors of
// ParseAggregatorConfig and of `apply`; then nothing has changed.
absl::Status ApplyConfig(const v1::AggregatorConfig& config,
                         const std::function<absl::Status(const AggregatorOptions&)>& apply);

}  // namespace sluice
