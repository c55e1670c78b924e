#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "lib/grpc_wire/metadata.h"
#include "lib/http2/headers.h"

namespace sluice {

// Keys that end in "-bin": their values are bytes.
bool IsBinaryKey(absl::string_view key);

// 0-9 a-z _ - . and not empty: gRPC's Header-Name.
bool IsMetadataKey(absl::string_view key);

// Space and printable ASCII: gRPC's ASCII-Value, also an empty one.
bool IsMetadataText(absl::string_view value);

// A name that HTTP/2 or gRPC's protocol gives a meaning of its own: never metadata, neither sent nor received.
bool IsProtocolField(absl::string_view name);

// Bytes as the value of a "-bin" field: base64 (RFC 4648, section 4) without padding.
std::string EncodeBinary(absl::string_view bytes);

// Takes base64 with and without padding. False: `text` is not base64.
bool DecodeBinary(absl::string_view text, std::string& bytes);

// Appends valid metadata as fields. Secret are the values of authorization, proxy-authorization, cookie, set-cookie and
// x-api-key.
void AppendFields(const Metadata& metadata, HeaderList& fields);

// Appends what a received field carries: nothing for those of the protocol; one value for each part of a binary one
// that is joined with commas. gRPC leaves to the receiver what becomes of values that it does not allow, and forbids
// only to fail on text; they are left out, so that what is received may be sent on.
void AppendMetadata(HeaderField&& field, Metadata& metadata);

// "application/grpc", alone or followed by "+" or ";".
bool IsGrpcContentType(absl::string_view value);

// Text of the other side for an error message: at most 64 bytes, what is not printable is "?".
std::string Snippet(absl::string_view text);

}  // namespace sluice
