#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// Encodes the value of grpc-message (gRPC's PROTOCOL-HTTP2: Percent-Encoded): "%" and every byte other than space and
// printable ASCII becomes "%XX".
std::string PercentEncode(absl::string_view bytes);

// Never fails: a "%" without two hexadecimal digits after it stays as it is.
std::string PercentDecode(absl::string_view text);

}  // namespace sluice
