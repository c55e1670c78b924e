#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "lib/grpc_wire/metadata.h"
#include "lib/http2/headers.h"

namespace sluice {

// True for keys that end in "-bin": their values are bytes.
bool IsBinaryKey(absl::string_view key);

// True for gRPC's Header-Name: 0-9 a-z _ - . and not empty.
bool IsMetadataKey(absl::string_view key);

// True for gRPC's ASCII-Value, space and printable ASCII, and for an empty value.
bool IsMetadataText(absl::string_view value);

// True for names that HTTP/2 or gRPC's protocol gives a meaning. They are never metadata, neither sent nor received.
bool IsProtocolField(absl::string_view name);

// Encodes bytes as the value of a "-bin" field: base64 (RFC 4648, section 4) without padding.
std::string EncodeBinary(absl::string_view bytes);

// Decodes base64 with or without padding. Returns false if `text` is not base64.
bool DecodeBinary(absl::string_view text, std::string& bytes);

// Appends valid metadata as fields. It marks the values of authorization, proxy-authorization, cookie, set-cookie and
// x-api-key as secret.
void AppendFields(const Metadata& metadata, HeaderList& fields);

// Appends the metadata of a received field: nothing for a field of the protocol, and one value for each part of a
// binary value that is joined with commas. gRPC lets the receiver decide about values that it does not allow, and only
// forbids to fail on text; they are left out here, so that received metadata may be sent on.
void AppendMetadata(HeaderField&& field, Metadata& metadata);

// True for "application/grpc", alone or followed by "+" or ";".
bool IsGrpcContentType(absl::string_view value);

// Text from the other side for an error message: at most 64 bytes, with "?" for bytes that are not printable.
std::string Snippet(absl::string_view text);

}  // namespace sluice
