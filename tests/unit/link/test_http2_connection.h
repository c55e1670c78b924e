#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/ip/tcp.hpp>

#include "absl/strings/string_view.h"
#include "lib/http2/session.h"
#include "tests/unit/link/test_http2_server.h"
#include "tests/unit/tls/tls_end.h"

namespace sluice::testing {

// One connection that a TestHttp2Server has accepted. Used on the server's thread only.
class TestHttp2Server::Connection final : private SessionEvents {
 public:
  Connection(TestHttp2Server& server, boost::asio::ip::tcp::socket socket);

  Http2Session& session() { return *session_; }
  void SendFrames(const std::string& frames);  // unchanged, after the bytes sent before
  void Break();                                // resets the connection, without GOAWAY
  void Close();                                // after the bytes that the socket has accepted

  void Read();
  void Flush();  // sends the output of the session

 private:
  friend class Call;
  StreamEvents* OnStream(int32_t stream) override;
  void OnBytes(absl::string_view bytes);
  void OnPlaintext(absl::string_view bytes);
  void Write();
  void Watch(absl::string_view bytes);

  TestHttp2Server& server_;
  boost::asio::ip::tcp::socket socket_;
  std::array<char, 65536> buffer_;
  std::optional<TlsServerEnd> tls_;
  size_t plaintext_bytes_ = 0;  // bytes of tls_ that the session has received
  std::unique_ptr<Http2Session> session_;
  bool receiving_now_ = false;                          // the session has no output within its events
  std::string frames_;                                  // of SendFrames, to be sent after the output of the session
  std::string output_;                                  // that the socket has not accepted
  bool output_waits_ = false;                           // until the socket accepts more
  std::map<int32_t, std::unique_ptr<Call>> receiving_;  // requests that are not complete

  // The windows of the streams, from the client's frames.
  std::string unread_;
  bool preface_read_ = false;
  int64_t first_window_bytes_ = 65535;
  std::map<int32_t, int64_t> widened_bytes_;
  std::map<int32_t, int64_t> sent_bytes_;
};

}  // namespace sluice::testing
