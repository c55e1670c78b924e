#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sluice {

// "grpc-timeout" (gRPC's PROTOCOL-HTTP2): at most eight digits and a unit, in the finest unit that can say it and
// rounded up. No time left is "1n", since zero is not allowed; more than 99999999 hours is that.
std::string FormatTimeout(absl::Duration timeout);

// Nothing: `text` is no timeout.
std::optional<absl::Duration> ParseTimeout(absl::string_view text);

}  // namespace sluice
