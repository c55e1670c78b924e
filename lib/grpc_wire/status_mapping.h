#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/http2/session.h"

namespace sluice {

// The status of a response without grpc-status (gRPC's http-grpc-status-mapping). 200 is Unknown.
absl::StatusCode CodeOfHttpStatus(int http_status);

// The status of a stream that was reset (gRPC's PROTOCOL-HTTP2, "Errors"). Codes that its table does not list are
// Internal, as in gRPC's core.
absl::StatusCode CodeOfReset(Http2Error error);

// "CANCEL"; for a number that RFC 9113, section 7, does not list: "unknown".
absl::string_view NameOf(Http2Error error);

// The status of grpc-status and grpc-message, which is still percent-encoded. Unknown if `code` is not a number from 0
// to 16.
absl::Status ParseStatus(absl::string_view code, absl::string_view message);

}  // namespace sluice
