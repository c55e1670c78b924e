#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/grpc_wire/metadata.h"
#include "lib/http2/headers.h"

namespace sluice {

// The head of a response, as a server sends it (gRPC's PROTOCOL-HTTP2, "Responses").
struct ResponseHead {
  std::string encoding;                // grpc-encoding of compressed messages; empty if there are none
  const Metadata* metadata = nullptr;  // valid, or null
};
HeaderList ToHeaders(const ResponseHead& head);

// The trailers of a response, sent with END_STREAM. `details` is a serialised google.rpc.Status or empty. `metadata` is
// valid.
HeaderList ToTrailers(const absl::Status& status, absl::string_view details, const Metadata& metadata);

// A response without messages: head and trailers in one, sent with END_STREAM. The HTTP status is 200 unless the
// request is not a gRPC call.
HeaderList ToTrailersOnly(const absl::Status& status, absl::string_view details, const Metadata& metadata,
                          int http_status = 200);

}  // namespace sluice
