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
  absl::Status status;         // grpc-status and grpc-message; or what stands for them where they did not come
  std::string status_details;  // grpc-status-details-bin, decoded: a google.rpc.Status; empty: none
  Metadata initial_metadata;   // without the fields of HTTP/2 and of gRPC's protocol; empty where trailers came alone
  Metadata trailing_metadata;  // likewise
  // The worker never looked at the request (StreamEnd::Kind::kUnhandled): it may be sent again, whatever it does.
  bool unhandled = false;
};

// The client side of one call: makes messages and a status out of what its stream brings (gRPC's PROTOCOL-HTTP2,
// "Responses"). One a call. Not thread-safe. Pure: whoever owns the stream feeds it, and asks after each feed.
class ResponseReader {
 public:
  struct Options {
    // A larger message, also once it is decompressed, ends the call with ResourceExhausted. 0 or more.
    int64_t max_message_bytes = 64 << 20;
    // False: a second message, or OK without one, ends the call with Unimplemented. So say gRPC's statuscodes
    // ("Response cardinality violation") and its clients in C++ and Node; those in Go and Java say Internal.
    bool server_streaming = false;
  };
  explicit ResponseReader(const Options& options);

  // As StreamEvents. What they find wrong with the other side's bytes shows as `failed()`: the owner then resets the
  // stream, and what End() says stays. A response that is not gRPC's fails with its headers: its body would need
  // grants, and says no more than the HTTP status does.
  void OnHeaders(HeaderList headers, bool end_stream);
  void OnData(absl::string_view bytes, bool end_stream);
  bool failed() const { return !failure_.ok(); }

  // The length prefix of a message is here whose rest is not: so many bytes of it are still to come, at least 1. 0: no
  // message is under way, or its rest will not come.
  int64_t pending_message_bytes() const { return failed() || ended_ ? 0 : messages_.pending_message_bytes(); }
  // Bytes of length prefixes that came.
  int64_t prefix_bytes() const { return messages_.prefix_bytes(); }
  // The next whole message, decompressed; false where there is none yet.
  bool TakeMessage(std::string& message) { return messages_.TakeMessage(message); }

  // Once the stream is closed, and once: how the call ended. HTTP status, RST_STREAM codes and a missing grpc-status
  // are mapped as gRPC's documents say (http-grpc-status-mapping, "Errors"). A message that was cut off is Internal,
  // except where grpc-status tells an error. A grpc-status that came with END_STREAM holds however the stream closed.
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
  // Of the first header block.
  std::string http_status_;
  std::string content_type_;
  std::string encoding_;
  // Of the trailers; or of the first header block, as long as nothing follows it.
  std::optional<std::string> grpc_status_;
  std::string grpc_message_;
  std::string status_details_;
  Metadata initial_metadata_;
  Metadata trailing_metadata_;
};

}  // namespace sluice
