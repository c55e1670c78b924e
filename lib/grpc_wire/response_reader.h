#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/grpc_wire/message_reader.h"
#include "lib/grpc_wire/metadata.h"
#include "lib/http2/headers.h"
#include "lib/http2/session.h"

namespace sluice {

// How a call ended.
struct RpcEnd {
  absl::Status status;         // grpc-status and grpc-message; or what stands for them where they did not come
  std::string status_details;  // grpc-status-details-bin, decoded: a google.rpc.Status; empty: none
  Metadata initial_metadata;   // without the fields of HTTP/2 and of gRPC's protocol
  Metadata trailing_metadata;
  // The worker never looked at the request (StreamEnd::Kind::kUnhandled): it may be sent again, whatever it does.
  bool unhandled = false;
};

// The client side of one call: makes messages and a status out of what its stream brings (gRPC's PROTOCOL-HTTP2,
// "Responses"). One a call. Not thread-safe. Pure: whoever owns the stream feeds it, and asks after each feed.
class ResponseReader {
 public:
  struct Options {
    int64_t max_message_bytes =
        64 << 20;                   // a larger one, also once it is decompressed, ends the call with ResourceExhausted
    bool server_streaming = false;  // false: a second message, or OK without one, ends the call with Internal
  };
  explicit ResponseReader(const Options& options);

  // As StreamEvents. What they find wrong with the other side's bytes shows as `failed()`: the owner then resets the
  // stream, and what End() says stays.
  void OnHeaders(HeaderList headers, bool end_stream);
  void OnData(absl::string_view bytes, bool end_stream);
  bool failed() const;

  // The length prefix of a message is here whose rest is not: so many bytes of it are still to come, at least 1. 0: no
  // message is under way.
  int64_t pending_message_bytes() const;
  // The next whole message, decompressed; false where there is none yet.
  bool TakeMessage(std::string& message);

  // Once the stream is closed: how the call ended. HTTP status, RST_STREAM codes and a missing grpc-status are mapped
  // as gRPC's documents say (http-grpc-status-mapping, "Errors"). A message that was cut off is Internal.
  RpcEnd End(StreamEnd end);

 private:
  const Options options_;
  MessageReader messages_;
  // ...
};

}  // namespace sluice
