#pragma once

#include <cstddef>

#include "sluice/metadata.h"

#include "absl/status/status.h"

namespace sluice {

// Maximum size of one Metadata, counted like an HTTP/2 header list (RFC 9113, section 6.5.2). It is the names and
// values as they are on the wire, and 32 bytes for each header. gRPC's protocol suggests this limit to servers, and C++
// servers have it.
inline constexpr size_t kMaxMetadataBytes = 8192;

// Returns InvalidArgument that names a key or value if HTTP/2 or gRPC's protocol reserves it or cannot carry it.
// Reserved are "grpc-...", pseudo-headers, "content-type", "te", "user-agent", "host", "content-length", and the
// headers of a connection (RFC 9113, section 8.2.2). Also returns InvalidArgument above kMaxMetadataBytes. A text value
// may be empty, and must not begin or end with a space, since HTTP/2 does not carry it.
absl::Status ValidateMetadata(const Metadata& metadata);

}  // namespace sluice
