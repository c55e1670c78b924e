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
  absl::Status status;         // from grpc-status and grpc-message, or mapped if they did not come
  std::string status_details;  // grpc-status-details-bin, decoded: a google.rpc.Status, or empty
  Metadata initial_metadata;   // without fields of HTTP/2 and gRPC's protocol; empty if trailers came alone
  Metadata trailing_metadata;  // likewise
  // True if the worker never looked at the request (StreamEnd::Kind::kUnhandled), so any request may be sent again.
  bool unhandled = false;
};

// The client side of one call: turns the events of its stream into messages and a status (gRPC's PROTOCOL-HTTP2,
// "Responses"). There is one for each call. Not thread-safe. It does no I/O: the owner of the stream feeds it, and
// looks at it after each event.
class ResponseReader {
 public:
  struct Options {
    // A larger message, as it comes, ends the call with ResourceExhausted. 0 or more.
    int64_t max_message_bytes = 64 << 20;
    // If false, a second message, or OK without one, ends the call with Unimplemented. That follows gRPC's statuscodes
    // ("Response cardinality violation") and its clients in C++ and Node; those in Go and Java say Internal.
    bool server_streaming = false;
    MessageBuffers* buffers = nullptr;  // may be null
  };
  explicit ResponseReader(const Options& options);

  // As StreamEvents. If the other side's bytes are wrong, failed() becomes true: the owner then resets the stream, and
  // End() reports the first failure. A response that is not gRPC's fails at its headers, since its body would need
  // grants and says no more than the HTTP status does.
  void OnHeaders(HeaderList headers, bool end_stream);
  void OnData(absl::string_view bytes, bool end_stream);
  bool failed() const { return !failure_.ok(); }

  // Bytes of the current message that are still to come, once its length prefix is here. 0 if no message is under way,
  // or if the rest will not come.
  int64_t pending_message_bytes() const { return failed() || ended_ ? 0 : messages_.pending_message_bytes(); }
  // Takes the next whole message, as MessageReader. Returns false if there is none yet.
  bool has_message() const { return messages_.has_message(); }
  bool TakeMessage(WireMessage& message) { return messages_.TakeMessage(message); }

  // Returns how the call ended. Call it once, after the stream has closed. HTTP status, RST_STREAM codes and a missing
  // grpc-status are mapped as gRPC's documents say (http-grpc-status-mapping, "Errors"). A message that was cut off is
  // Internal, unless grpc-status has an error. A grpc-status that came with END_STREAM holds however the stream closed.
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
  bool ended_ = false;  // by END_STREAM of the worker
  // From the first header block.
  std::string http_status_;
  std::string content_type_;
  std::string encoding_;
  // From the trailers; or from the first header block, until something follows it.
  std::optional<std::string> grpc_status_;
  std::string grpc_message_;
  std::string status_details_;
  Metadata initial_metadata_;
  Metadata trailing_metadata_;
};

}  // namespace sluice
