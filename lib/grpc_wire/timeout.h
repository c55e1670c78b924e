#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sluice {

// Returns the value of grpc-timeout (gRPC's PROTOCOL-HTTP2): at most eight digits and a unit, rounded up in the finest
// unit that fits. No time left becomes "1n", since zero is not allowed. More than 99999999 hours becomes 99999999
// hours.
std::string FormatTimeout(absl::Duration timeout);

// Returns nullopt if `text` is not a timeout.
std::optional<absl::Duration> ParseTimeout(absl::string_view text);

}  // namespace sluice
