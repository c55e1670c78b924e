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

// One connection that a TestHttp2Server has accepted. For the server's thread only.
class TestHttp2Server::Connection final : private SessionEvents {
 public:
  Connection(TestHttp2Server& server, boost::asio::ip::tcp::socket socket);

  Http2Session& session() { return *session_; }
  void SendFrames(const std::string& frames);  // as they are, behind what was sent before
  void Break();                                // resets the connection, without a word
  void Close();                                // behind what the socket has taken

  void Read();
  void Flush();  // sends what the session gives out

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
  size_t plaintext_bytes_ = 0;  // of tls_, that the session has had
  std::unique_ptr<Http2Session> session_;
  bool receiving_now_ = false;                          // the session gives nothing out within its events
  std::string frames_;                                  // of SendFrames, that follow what the session gives out
  std::string output_;                                  // that the socket has not taken
  bool output_waits_ = false;                           // until the socket takes more
  std::map<int32_t, std::unique_ptr<Call>> receiving_;  // requests of which there is more to come

  // What the client's frames say about the windows of its streams.
  std::string unread_;
  bool preface_read_ = false;
  int64_t first_window_bytes_ = 65535;
  std::map<int32_t, int64_t> widened_bytes_;
  std::map<int32_t, int64_t> sent_bytes_;
};

}  // namespace sluice::testing
