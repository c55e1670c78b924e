#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sluice/fan_out.h"

#include "absl/status/status.h"

namespace sluice {

// InvalidArgument that names the field, the value and the bound. `asks`: by worker; nothing where it is skipped.
absl::Status ValidateFanOut(const std::string& method, const std::vector<std::optional<Ask<std::string>>>& asks,
                            const FanOutOptions& options);

}  // namespace sluice
