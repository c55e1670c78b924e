#pragma once

#include <cstdint>
#include <optional>
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
  absl::Status status;         // from grpc-status and grpc-message, or mapped if they are missing
  std::string status_details;  // grpc-status-details-bin, decoded: a google.rpc.Status, or empty
  // Without headers of HTTP/2 and gRPC's protocol. Initial metadata is empty if the response has only trailers.
  Metadata initial_metadata;
  Metadata trailing_metadata;
  // True if the worker did not process the request (StreamEnd::Kind::kUnhandled), so any request may be sent again.
  bool unhandled = false;
};

// The client side of one call: turns the events of its stream into messages and a status (gRPC's PROTOCOL-HTTP2,
// "Responses"). It does no I/O: the owner of the stream passes the events to it, and reads its state after each event.
// There is one for each call. Not thread-safe.
class ResponseReader {
 public:
  struct Options {
    // A larger message, before decompression, ends the call with ResourceExhausted. 0 or more.
    int64_t max_message_bytes = 64 << 20;
    // If false, a second message, or OK without a message, ends the call with Unimplemented. That follows gRPC's
    // statuscodes ("Response cardinality violation") and its clients in C++ and Node. Clients in Go and Java return
    // Internal.
    bool server_streaming = false;
    MessageBuffers* buffers = nullptr;  // may be null
  };
  explicit ResponseReader(const Options& options);

  // Like StreamEvents. If the bytes of the other side are wrong, failed() becomes true. The owner then resets the
  // stream, and End() reports the first failure. A response that is not gRPC fails at its headers. Its body would need
  // grants, and reports no more than the HTTP status does.
  void OnHeaders(HeaderList headers, bool end_stream);
  void OnData(absl::string_view bytes, bool end_stream);
  bool failed() const { return !failure_.ok(); }

  // Returns the bytes of the current message that are still to come, once its length prefix has arrived. Returns 0 if
  // no message is under way, or if the rest will not come.
  int64_t pending_message_bytes() const { return failed() || ended_ ? 0 : messages_.pending_message_bytes(); }
  // Take the next whole message, like MessageReader. TakeMessage returns false if no message is complete.
  bool has_message() const { return messages_.has_message(); }
  bool TakeMessage(WireMessage& message) { return messages_.TakeMessage(message); }

  // Returns how the call ended. Call it once, after the stream has closed. HTTP status, RST_STREAM codes and a missing
  // grpc-status are mapped as in gRPC's documents (http-grpc-status-mapping, "Errors"). A message that was cut off is
  // Internal, unless grpc-status has an error. A grpc-status that came with END_STREAM is used however the stream
  // closed.
  RpcEnd End(StreamEnd end);

 private:
  void ReadHead(HeaderList headers, bool end_stream);
  void ReadTrailers(HeaderList headers, bool end_stream);
  void ReadField(HeaderField&& field, Metadata& metadata);
  void ForgetStatus();
  void Fail(absl::Status status);
  absl::Status HttpStatus() const;
  absl::Status ResponseStatus(std::string& details);
  absl::Status CutStatus(StreamEnd end) const;

  const Options options_;
  MessageReader messages_;
  absl::Status failure_;
  bool headers_came_ = false;
  bool ended_ = false;  // the worker sent END_STREAM
  // From the first header block.
  std::string http_status_;
  std::string content_type_;
  std::string encoding_;
  // From the trailers, or from the first header block until more follows.
  std::optional<std::string> grpc_status_;
  std::string grpc_message_;
  std::string status_details_;
  Metadata initial_metadata_;
  Metadata trailing_metadata_;
};

}  // namespace sluice
