#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace sluice {

// Metadata of a call, in order; a key may come several times. Keys are lower-case; the values of keys that end in
// "-bin" are bytes (base64 on the wire), those of others printable ASCII.
using Metadata = std::vector<std::pair<std::string, std::string>>;

// InvalidArgument that names the key or value that HTTP/2 or gRPC's protocol cannot carry, or that gRPC keeps for
// itself
// ("grpc-...", pseudo-headers, "content-type", "te").
absl::Status ValidateMetadata(const Metadata& metadata);

}  // namespace sluice
