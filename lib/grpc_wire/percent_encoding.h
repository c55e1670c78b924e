#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// The value of grpc-message: all but space and printable ASCII without "%" becomes "%XX" (gRPC's PROTOCOL-HTTP2:
// Percent-Encoded).
std::string PercentEncode(absl::string_view bytes);

// Never fails: a "%" that two hexadecimal digits do not follow stays as it is.
std::string PercentDecode(absl::string_view text);

}  // namespace sluice
