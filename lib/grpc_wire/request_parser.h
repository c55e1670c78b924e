#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/grpc_wire/metadata.h"
#include "lib/http2/headers.h"

namespace sluice {

// The head of a call, as a server receives it (gRPC's PROTOCOL-HTTP2, "Requests").
struct ReceivedRequestHead {
  std::string path;
  std::string authority;
  bool tls = false;
  absl::Duration timeout = absl::InfiniteDuration();
  std::string encoding;         // grpc-encoding; empty: none
  std::string accept_encoding;  // grpc-accept-encoding, as it came; empty: none
  std::string user_agent;
  // Without the fields of HTTP/2 and of gRPC's protocol. Unknown keys of gRPC's ("grpc-trace-bin") are kept, so that a
  // proxy can send them on; ValidateMetadata refuses them from others.
  Metadata metadata;
};

// Not OK: this is no call of gRPC; ToRefusal makes the answer. InvalidArgument: the content type; Unimplemented: the
// method of HTTP is not POST; Internal: :path or grpc-timeout.
absl::StatusOr<ReceivedRequestHead> ParseRequestHead(HeaderList headers);

// What answers a request that ParseRequestHead refuses: trailers alone, with the HTTP status 415, 405 or 400.
HeaderList ToRefusal(const absl::Status& refusal);

}  // namespace sluice
