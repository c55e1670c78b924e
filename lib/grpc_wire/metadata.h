#pragma once

#include "sluice/metadata.h"

#include "absl/status/status.h"

namespace sluice {

// InvalidArgument that names the key or value that HTTP/2 or gRPC's protocol cannot carry, or that gRPC keeps for
// itself
// ("grpc-...", pseudo-headers, "content-type", "te").
absl::Status ValidateMetadata(const Metadata& metadata);

}  // namespace sluice
