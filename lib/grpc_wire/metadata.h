#pragma once

#include <cstddef>

#include "sluice/metadata.h"

#include "absl/status/status.h"

namespace sluice {

// Maximum size of one Metadata, in bytes as HTTP/2 counts a header list (RFC 9113, section 6.5.2): names and values as
// they are on the wire, and 32 for each field. gRPC's protocol suggests this limit to servers, and those in C++ have
// it.
inline constexpr size_t kMaxMetadataBytes = 8192;

// Returns InvalidArgument that names a key or value that HTTP/2 or gRPC's protocol cannot carry, or that they reserve:
// "grpc-...", pseudo-headers, "content-type", "te", "user-agent", "host", "content-length", and the fields of a
// connection (RFC 9113, section 8.2.2). Also returns InvalidArgument above kMaxMetadataBytes. A value that is not
// binary may be empty, and must not begin or end with a space, since HTTP/2 does not carry that.
absl::Status ValidateMetadata(const Metadata& metadata);

}  // namespace sluice
