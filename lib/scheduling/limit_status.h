#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice {

// Statuses of calls that a link or a proxy refuses or ends at one of its limits. `limit` is the field of the config:
// "limits.calls". AccessRecord and the access log contain it; clients of the proxy receive the message alone.
absl::Status AtLimit(absl::string_view limit, absl::string_view message);
std::string LimitOf(const absl::Status& why);  // empty: the status has none

}  // namespace sluice
