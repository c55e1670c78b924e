#pragma once

#include <cstddef>

#include "sluice/metadata.h"

#include "absl/status/status.h"

namespace sluice {

// Maximum size of one Metadata, in bytes as HTTP/2 counts a header list (RFC 9113, section 6.5.2): names and values as
// they are on the wire, and 32 for each field. gRPC's protocol suggests that servers take no more than this; those in
// C++ do not.
inline constexpr size_t kMaxMetadataBytes = 8192;

// InvalidArgument that names the key or value that HTTP/2 or gRPC's protocol cannot carry, or that they keep for
// themselves: "grpc-...", pseudo-headers, "content-type", "te", "user-agent", "host", "content-length", and the fields
// of a connection (RFC 9113, section 8.2.2). Also InvalidArgument: more than kMaxMetadataBytes. A value that is not
// binary may be empty, and has no space at either end, since HTTP/2 does not carry that.
absl::Status ValidateMetadata(const Metadata& metadata);

}  // namespace sluice
