#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "lib/http2/session.h"
#include "tests/unit/tls/tls_end.h"

namespace sluice::testing {

// One end of a connection, which the destructor closes.
class TestSocket {
 public:
  explicit TestSocket(int fd) : fd_(fd) {}
  TestSocket(TestSocket&& other) noexcept;
  TestSocket& operator=(TestSocket&&) = delete;
  ~TestSocket();

  int fd() const { return fd_; }
  void Send(absl::string_view bytes) const;         // sends all bytes; fails the test if the other end reads none
  std::string ReceiveUntil(absl::string_view end);  // with the bytes after `end`; less if the connection ends
  std::string ReceiveAll();
  void Break();  // closes the connection with a reset

 private:
  int fd_;
};

// Connects to "127.0.0.1:port", "unix:PATH" or "unix-abstract:NAME".
TestSocket ConnectTo(const std::string& address);

// One side of an HTTP/2 connection, on the thread of the test. It reads and writes only within Pump, so a peer that the
// test does not pump hangs. Not thread-safe.
class Http2Peer final : private SessionEvents {
 public:
  // The headers and data that have arrived on one stream.
  class Stream final : public StreamEvents {
   public:
    Stream(Http2Peer& peer, int32_t number) : id(number), peer_(peer) {}

    int32_t id;
    HeaderList headers;  // of the request or the response
    HeaderList trailers;
    std::string data;
    bool ended = false;  // END_STREAM has arrived
    std::optional<StreamEnd> closed;

    // A header of the trailers, or of headers that are also trailers; empty if there is none.
    std::string Field(absl::string_view name) const;
    std::string status() const { return Field("grpc-status"); }
    bool is(StreamEnd::Kind kind, Http2Error error = Http2Error::kNoError) const {
      return closed.has_value() && closed->kind == kind && closed->error == error;
    }

   private:
    void OnHeaders(HeaderList list, bool end_stream) override;
    void OnData(absl::string_view bytes, size_t window_bytes, bool end_stream) override;
    void OnClosed(StreamEnd end) override;

    Http2Peer& peer_;
  };

  // `tls` null: plaintext.
  explicit Http2Peer(TestSocket socket, Http2Session::Options options = {},
                     std::unique_ptr<TlsClientEnd> tls = nullptr);
  Http2Peer(const Http2Peer&) = delete;
  Http2Peer& operator=(const Http2Peer&) = delete;

  Http2Session& session() { return *session_; }
  TestSocket& socket() { return socket_; }
  // Client side. The connection must have room for a stream.
  Stream& Open(const HeaderList& headers, std::string body = "", bool end_stream = true, uint32_t granted_bytes = 0);
  // Server side: the streams that have arrived, in order.
  std::vector<Stream*> streams();

  // Whether received bytes are granted again at once; true by default.
  void set_grants(bool grants) { grants_ = grants; }
  // The connection has ended.
  bool over() const { return over_; }
  const TlsClientEnd* tls() const { return tls_.get(); }

  void Pump();   // reads the received bytes, and writes the pending bytes
  void Flush();  // only writes

 private:
  StreamEvents* OnStream(int32_t id) override;
  bool Receive(absl::string_view bytes);

  TestSocket socket_;
  const std::unique_ptr<TlsClientEnd> tls_;
  size_t taken_bytes_ = 0;  // of the bytes that TLS has received
  bool grants_ = true;
  bool over_ = false;
  std::string plaintext_;                               // bytes that wait for the handshake
  std::string output_;                                  // bytes that the socket has not accepted
  std::map<int32_t, std::unique_ptr<Stream>> streams_;  // declared before the session: they outlive their streams
  std::unique_ptr<Http2Session> session_;
};

// Pumps these peers until the condition is true. Returns false if it did not become true in time.
bool Await(std::initializer_list<Http2Peer*> peers, absl::FunctionRef<bool()> condition);

}  // namespace sluice::testing
