#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/grpc_wire/message_reader.h"
#include "lib/grpc_wire/metadata.h"
#include "lib/grpc_wire/request_parser.h"
#include "lib/http2/session.h"

namespace sluice::testing {

// A unary or server-streaming call on the server's side of a session: reads the request, and sends the response in
// parts. Servers of tests derive from it. It does no I/O: the session's owner must take its output. Bytes sent after
// the stream has closed are dropped. One for each stream. Not thread-safe.
class ServerCall : public StreamEvents {
 public:
  static constexpr int64_t kLargestRequestBytes = 64 << 20;

  ServerCall(Http2Session& session, int32_t stream)
      : session_(session), stream_(stream), messages_(kLargestRequestBytes) {}

  int32_t stream() const { return stream_; }
  const ReceivedRequestHead& head() const { return head_; }
  const std::string& request() const { return request_; }  // the message
  bool closed() const { return closed_; }

  void Answer(absl::string_view message);  // the whole response: head, message, trailers
  void Fail(const absl::Status& status, absl::string_view details = "",
            const Metadata& metadata = {});  // trailers only
  // Send the parts of a response. Call them in this order.
  void SendHead(const Metadata& metadata = {});
  // Returns the number of bytes that wait for the client's window. OnWritable reports when they have been sent.
  size_t SendData(std::string bytes);
  void SendDataAndEnd(std::string bytes);  // without trailers, which no server of gRPC does
  void SendTrailers(const absl::Status& status = absl::OkStatus(), absl::string_view details = "",
                    const Metadata& metadata = {});
  void Reset(Http2Error error);

 private:
  virtual void OnRequest() = 0;            // the whole request has arrived
  virtual void OnGone(StreamEnd end) = 0;  // the stream has closed; may destroy this object

  void OnHeaders(HeaderList headers, bool end_stream) final;
  void OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) final;
  void OnClosed(StreamEnd end) final;

  Http2Session& session_;
  const int32_t stream_;
  ReceivedRequestHead head_;
  MessageReader messages_;
  std::string request_;
  bool closed_ = false;
};

}  // namespace sluice::testing
