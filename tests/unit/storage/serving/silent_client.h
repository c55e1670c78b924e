#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
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

  // The next frame from the server. Nothing if the server closes the connection.
  std::optional<raw::ReadFrame> Receive() const {
    std::string frame = Receive(kFrameHead);
    if (frame.size() < kFrameHead) return std::nullopt;
    const auto byte = [&frame](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(frame[i])); };
    frame += Receive(byte(0) << 16 | byte(1) << 8 | byte(2));
    return raw::ReadFrames(frame).front();
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
  static constexpr size_t kFrameHead = 9;

  // Returns fewer bytes if the server closes the connection.
  std::string Receive(size_t bytes) const {
    std::string all;
    while (all.size() < bytes) {
      pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
      EXPECT_EQ(poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))), 1);
      char buffer[16384];
      const ssize_t size = recv(fd_, buffer, std::min(sizeof(buffer), bytes - all.size()), MSG_DONTWAIT);
      if (size <= 0) break;
      all.append(buffer, static_cast<size_t>(size));
    }
    return all;
  }

  const int fd_;
};

}  // namespace sluice::testing
