#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sluice/fan_out.h"

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sluice {

// Checks the hedging options of FanOutOptions or BlockReader::Options.
absl::Status ValidateHedging(const std::optional<absl::Duration>& hedge_after,
                             const std::optional<double>& hedge_after_quantile, double hedge_ratio);

// Returns InvalidArgument that names the option, the value and the bound. `asks` has one entry for each worker, which
// is empty if the worker is skipped.
absl::Status ValidateFanOut(const std::string& method, const std::vector<std::optional<Ask<std::string>>>& asks,
                            const FanOutOptions& options);

// Returns InvalidArgument if the link does not have this class; it has the empty name.
absl::Status CheckTrafficClass(const std::vector<TrafficClass>& classes, const std::string& name);

}  // namespace sluice
