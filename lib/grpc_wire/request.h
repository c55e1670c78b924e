#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/grpc_wire/metadata.h"
#include "lib/grpc_wire/timeout.h"
#include "lib/http2/headers.h"

namespace sluice {

// The head of a call, as a client sends it (gRPC's PROTOCOL-HTTP2, "Requests").
struct RequestHead {
  std::string path;       // "/package.Service/Method"
  std::string authority;  // host:port of the worker
  bool tls = false;       // :scheme is https
  // Time that the call has left. It is rounded up to eight digits, so that the worker never gives up before the client.
  // Infinite time is not sent.
  absl::Duration timeout = absl::InfiniteDuration();
  bool gzip = false;                        // messages may be compressed
  const Metadata* metadata = nullptr;       // valid, or null
  const Metadata* more_metadata = nullptr;  // valid, sent after `metadata`; or null
};
HeaderList ToHeaders(const RequestHead& head);

// Returns the length prefix and the message, uncompressed. `message` has at most 2^32 - 1 bytes.
std::string FrameMessage(absl::string_view message);
// Like FrameMessage, but compressed with gzip if that is smaller. For calls with RequestHead::gzip.
std::string FrameCompressed(absl::string_view message);

}  // namespace sluice
