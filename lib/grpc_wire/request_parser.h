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
  std::string accept_encoding;  // grpc-accept-encoding, as received; empty: none
  std::string user_agent;
  // Without headers of HTTP/2 and of gRPC's protocol. Unknown keys that begin with "grpc-" ("grpc-trace-bin") are kept,
  // so that a proxy can send them on. ValidateMetadata refuses them from applications.
  Metadata metadata;
};

// Returns an error if this is not a gRPC call. The code is InvalidArgument for the content type, Unimplemented for an
// HTTP method other than POST, and Internal for :path or grpc-timeout. ToRefusal makes the response to the error.
absl::StatusOr<ReceivedRequestHead> ParseRequestHead(HeaderList headers);

// Same, without the metadata, for callers that send the headers on.
absl::StatusOr<ReceivedRequestHead> ParseProtocolFields(const HeaderList& headers);

// Returns the response to a request that ParseRequestHead refuses: trailers only, with the HTTP status 415, 405 or 400.
HeaderList ToRefusal(const absl::Status& refusal);

}  // namespace sluice
