#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "lib/grpc_wire/metadata.h"
#include "lib/http2/headers.h"

namespace sluice {

// Returns true for keys that end in "-bin". Their values are bytes.
bool IsBinaryKey(absl::string_view key);

// Returns true for gRPC's Header-Name: 0-9 a-z _ - . and not empty.
bool IsMetadataKey(absl::string_view key);

// Returns true for gRPC's ASCII-Value, which is space and printable ASCII, and for an empty value.
bool IsMetadataText(absl::string_view value);

// Returns true for names that have a meaning in HTTP/2 or gRPC's protocol. They are never sent or received as metadata.
bool IsProtocolField(absl::string_view name);

// Encodes bytes as the value of a "-bin" header: base64 (RFC 4648, section 4) without padding.
std::string EncodeBinary(absl::string_view bytes);

// Decodes base64 with or without padding. Returns false if `text` is not base64.
bool DecodeBinary(absl::string_view text, std::string& bytes);

// Appends valid metadata as headers. Marks the values of authorization, proxy-authorization, cookie, set-cookie and
// x-api-key as secret.
void AppendFields(const Metadata& metadata, HeaderList& fields);

// Appends the metadata of a received header, and nothing for a header of the protocol. A binary value that is joined
// with commas becomes one value for each part. Values that gRPC does not allow are dropped, so that received metadata
// may be sent on. gRPC lets the receiver decide about them, and only forbids it to fail on text.
void AppendMetadata(HeaderField&& field, Metadata& metadata);

// Returns true for "application/grpc", alone or followed by "+" or ";".
bool IsGrpcContentType(absl::string_view value);

// Shortens text of the other side for an error message: at most 64 bytes, with "?" for bytes that are not printable.
std::string Snippet(absl::string_view text);

}  // namespace sluice
