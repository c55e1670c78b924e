#pragma once

#include <string>

#include "absl/status/status.h"

// What a process says of itself when it joins a shared link; both sides check it.
namespace sluice {

// 1 to 64 of [A-Za-z0-9._-]: it is a label of metrics.
absl::Status CheckApplication(const std::string& application);

// 0.001 to 1000.
absl::Status CheckWeight(double weight);

}  // namespace sluice
