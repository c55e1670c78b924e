#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <sys/socket.h>

#include "gtest/gtest.h"
#include "lib/net/socket_address.h"
#include "lib/net/worker_address.h"
#include "tests/unit/proxy/http2_peer.h"

namespace sluice::testing {

// A worker on the thread of the test, which receives a request piece by piece: see Http2Peer. TestHttp2Server has a
// thread of its own, and waits for the whole request. Not thread-safe.
class PeerWorker {
 public:
  // `stream_window_bytes` is the number of bytes that a client may send on a stream before a grant. Port 0 of `address`
  // means any free port.
  explicit PeerWorker(uint32_t stream_window_bytes = 65535, const std::string& address = "127.0.0.1:0")
      : stream_window_bytes_(stream_window_bytes),
        listener_(socket(IsUnixAddress(address) ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
        address_(address) {
    const auto endpoint = ParseSocketAddress(address, SocketUse::kListen);
    EXPECT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_EQ(bind(listener_.fd(), endpoint->data(), static_cast<socklen_t>(endpoint->size())), 0);
    EXPECT_EQ(listen(listener_.fd(), SOMAXCONN), 0);
    if (IsUnixAddress(address)) return;
    boost::asio::ip::tcp::endpoint bound;
    auto bytes = static_cast<socklen_t>(bound.capacity());
    EXPECT_EQ(getsockname(listener_.fd(), bound.data(), &bytes), 0);
    address_ = FormatSocketAddress(bound);
  }

  const std::string& address() const { return address_; }
  // The accepted connections, in order.
  const std::vector<std::unique_ptr<Http2Peer>>& connections() const { return connections_; }
  Http2Session& session() { return connections_.back()->session(); }
  // Sends bytes on the last connection, past its session.
  void Say(const std::string& bytes) { connections_.back()->socket().Send(bytes); }

  void Pump() {
    const int fd = accept(listener_.fd(), nullptr, nullptr);
    if (fd >= 0) {
      connections_.push_back(std::make_unique<Http2Peer>(
          TestSocket(fd), Http2Session::Options{.side = Http2Session::Side::kServer,
                                                .stream_window_bytes = stream_window_bytes_,
                                                .connection_window_bytes = std::max(16u << 20, stream_window_bytes_),
                                                .max_unsent_bytes_per_stream = 64u << 20}));
    }
    for (const auto& connection : connections_) connection->Pump();
  }

 private:
  const uint32_t stream_window_bytes_;
  TestSocket listener_;
  std::string address_;
  std::vector<std::unique_ptr<Http2Peer>> connections_;
};

}  // namespace sluice::testing
