#pragma once

#include <cstdint>
#include <string>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace sluice::testing {

// A TCP socket on a free port of loopback. It accepts connections and never sends. After Close it is an address on
// which no process listens. Not thread-safe.
class SilentListener {
 public:
  SilentListener() {
    Bind();
    EXPECT_EQ(listen(fd_, 64), 0);
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~SilentListener() { close(fd_); }
  SilentListener(const SilentListener&) = delete;
  SilentListener& operator=(const SilentListener&) = delete;

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  // Returns whether a client has connected.
  bool HasConnection() const {
    pollfd state{fd_, POLLIN, 0};
    return poll(&state, 1, 0) == 1;
  }

  // Keeps the port bound: otherwise a server of another test could respond there.
  void Close() {
    close(fd_);
    Bind();
  }

 private:
  void Bind() {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port_);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

  int fd_ = -1;
  uint16_t port_ = 0;
};

}  // namespace sluice::testing
