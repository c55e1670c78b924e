#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/http2/session.h"

namespace sluice {

// Maps a response without grpc-status (gRPC's http-grpc-status-mapping). 200 becomes Unknown.
absl::StatusCode CodeOfHttpStatus(int http_status);

// Maps the reset of a stream (gRPC's PROTOCOL-HTTP2, "Errors"). Codes that its table does not list become Internal, as
// in gRPC's core.
absl::StatusCode CodeOfReset(Http2Error error);

// Returns a name such as "CANCEL", or "unknown" for a number that RFC 9113, section 7, does not list.
absl::string_view NameOf(Http2Error error);

// Makes a status from grpc-status and grpc-message, which is still percent-encoded. Returns Unknown if `code` is not a
// number from 0 to 16.
absl::Status ParseStatus(absl::string_view code, absl::string_view message);

}  // namespace sluice
