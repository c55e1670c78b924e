#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

// Checks of the name, weight and classes with which a process joins a shared link; both sides make them.
namespace sluice {

// The name must have 1 to 64 characters of [A-Za-z0-9._-], since it is a label of metrics.
absl::Status CheckApplication(const std::string& application);

// The weight must be 0.001 to 1000.
absl::Status CheckWeight(double weight);

// At most TrafficClass::kMaxClasses different names of 1 to TrafficClass::kMaxNameBytes of [A-Za-z0-9._-].
absl::Status CheckClasses(const std::vector<std::string>& names);

}  // namespace sluice
