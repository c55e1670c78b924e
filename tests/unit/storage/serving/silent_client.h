#pragma once

#include <cstdint>
#include <string>

#include <google/protobuf/message_lite.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lib/grpc_wire/request.h"
#include "lib/net/socket_address.h"
#include "tests/unit/http2/raw_frames.h"
#include "tests/wait_until.h"

namespace sluice::testing {

// A client of gRPC that begins a call, and then reads nothing and answers nothing, until WaitUntilClosed.
class SilentClient {
 public:
  explicit SilentClient(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto server = ParseSocketAddress(address, SocketUse::kConnect);
    EXPECT_TRUE(server.ok()) << server.status();
    EXPECT_EQ(connect(fd_, server->data(), static_cast<socklen_t>(server->size())), 0);
    Send(raw::kPreface);
    Send(raw::Settings());
  }
  ~SilentClient() { close(fd_); }
  SilentClient(const SilentClient&) = delete;
  SilentClient& operator=(const SilentClient&) = delete;

  void Send(absl::string_view bytes) const {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }

  // The server may send `window_bytes` of the response.
  void Call(const std::string& path, const google::protobuf::MessageLite& request,
            uint32_t window_bytes = 65535) const {
    Send(raw::Settings({{raw::kInitialWindowSize, window_bytes}}));
    if (window_bytes > 65535) Send(raw::WindowUpdate(0, window_bytes - 65535));
    Send(raw::Headers(1, ToHeaders({.path = path, .authority = "server"})));
    Send(raw::Data(1, FrameMessage(request.SerializeAsString()), /*end_stream=*/true));
  }

  bool WaitUntilClosed() const {
    char bytes[4096];
    while (true) {
      pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
      if (poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) != 1) return false;
      if (recv(fd_, bytes, sizeof(bytes), 0) <= 0) return true;
    }
  }

 private:
  const int fd_;
};

}  // namespace sluice::testing
