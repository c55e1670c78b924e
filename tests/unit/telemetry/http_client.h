#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace sluice {

// One connection to a server on 127.0.0.1, byte by byte, for requests that no HTTP library would send. Every wait ends
// after at most ten seconds.
class HttpClient {
 public:
  explicit HttpClient(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in server{};
    server.sin_family = AF_INET;
    server.sin_port = htons(static_cast<uint16_t>(std::atoi(address.substr(address.rfind(':') + 1).c_str())));
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&server), sizeof(server)), 0) << address;
  }
  ~HttpClient() { close(fd_); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void Send(std::string_view text) {
    EXPECT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }

  // Returns the next response: header and body, or only the header for a HEAD request. Empty if the connection has
  // ended.
  std::string Receive(bool is_head = false) {
    while (input_.find("\r\n\r\n") == std::string::npos) {
      if (!ReceiveSome()) return std::exchange(input_, {});
    }
    const size_t header_bytes = input_.find("\r\n\r\n") + 4;
    const size_t field = input_.find("Content-Length: ");
    const size_t body_bytes =
        is_head || field > header_bytes ? 0 : static_cast<size_t>(std::atoi(input_.c_str() + field + 16));
    while (input_.size() < header_bytes + body_bytes) {
      if (!ReceiveSome()) break;
    }
    std::string response = input_.substr(0, header_bytes + body_bytes);
    input_.erase(0, response.size());
    return response;
  }

  // Returns whether the server closes the connection without further bytes.
  bool IsClosed() { return input_.empty() && !ReceiveSome() && !timed_out_; }

 private:
  bool ReceiveSome() {
    pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
    timed_out_ = poll(&ready, 1, 10'000) != 1;
    if (timed_out_) return false;
    char bytes[4096];
    const ssize_t count = recv(fd_, bytes, sizeof(bytes), 0);
    if (count <= 0) return false;
    input_.append(bytes, static_cast<size_t>(count));
    return true;
  }

  const int fd_;
  std::string input_;
  bool timed_out_ = false;
};

}  // namespace sluice
