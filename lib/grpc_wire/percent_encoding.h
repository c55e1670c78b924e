#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// Encodes the value of grpc-message (gRPC's PROTOCOL-HTTP2: Percent-Encoded): "%" and every byte other than space and
// printable ASCII becomes "%XX".
std::string PercentEncode(absl::string_view bytes);

// Never fails. A "%" without two hexadecimal digits after it is not changed.
std::string PercentDecode(absl::string_view text);

}  // namespace sluice
