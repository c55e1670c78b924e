#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/grpc_wire/metadata.h"
#include "lib/http2/headers.h"

namespace sluice {

// The head of an answer, as a server sends it (gRPC's PROTOCOL-HTTP2, "Responses").
struct ResponseHead {
  std::string encoding;                // grpc-encoding of the messages that are compressed; empty: none is
  const Metadata* metadata = nullptr;  // valid; null: none
};
HeaderList ToHeaders(const ResponseHead& head);

// What ends an answer, with END_STREAM. `details` is a serialised google.rpc.Status; empty: none. `metadata` is valid.
HeaderList ToTrailers(const absl::Status& status, absl::string_view details, const Metadata& metadata);

// An answer that is nothing but its end: head and trailers in one, with END_STREAM. The HTTP status is 200 except where
// the request is none of gRPC's.
HeaderList ToTrailersOnly(const absl::Status& status, absl::string_view details, const Metadata& metadata,
                          int http_status = 200);

}  // namespace sluice
