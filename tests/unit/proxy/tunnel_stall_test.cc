// Tunnels that only forward bytes, when one end reads nothing or disconnects.
#include <algorithm>
#include <cstdint>
#include <string>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/proxy/proxy_fixture.h"

namespace sluice::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::StartsWith;

constexpr char kTls[] = "\x16";  // first byte of a protocol that is only forwarded
constexpr int kFullAfterMs = 300;

class TunnelStallTest : public ProxyTest {
 protected:
  void Start(std::chrono::nanoseconds stall_timeout = std::chrono::hours(1)) {
    // The buffer of a TCP socket grows without bound; the buffer of a Unix socket does not.
    options_.listeners = {{.address = absl::StrCat("unix-abstract:sluice-tunnel-stall-", getpid()), .route = ""}};
    options_.proxy.client_stall_timeout = stall_timeout;
    options_.proxy.tunnel_stall_timeout = stall_timeout;
    StartProxy();
  }
  TestSocket Dial(const TestListener& listener) const {
    const std::string target = listener.address().text;
    TestSocket socket = ConnectTo(address());
    socket.Send(absl::StrCat("CONNECT ", target, " HTTP/1.1\r\nHost: ", target, "\r\n\r\n"));
    EXPECT_THAT(socket.ReceiveUntil("\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
    return socket;
  }
  // Sends until the tunnel reads no more, has ended, or has read `most_bytes`. Returns the number of sent bytes.
  static size_t Fill(const TestSocket& socket, size_t most_bytes = SIZE_MAX) {
    const std::string bytes(64 << 10, kTls[0]);
    size_t sent = 0;
    pollfd state{socket.fd(), POLLOUT, 0};
    while (sent < most_bytes && poll(&state, 1, kFullAfterMs) == 1) {
      const size_t part = std::min(bytes.size(), most_bytes - sent);
      const ssize_t taken = send(socket.fd(), bytes.data(), part, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (taken < 0) break;
      sent += static_cast<size_t>(taken);
    }
    return sent;
  }
  bool AwaitNoConnection() { return AwaitMetric("sluice_proxy_connections", 0); }
};

// Both directions count, and also without any call.
TEST_F(TunnelStallTest, BytesThatAWorkerDoesNotReadAreBounded) {
  options_.proxy.max_held_bytes = 64 << 10;
  options_.proxy.max_calls = 16;
  Start();
  EventLog go_on;
  TestListener listener("127.0.0.1:0", [&](int fd) {
    go_on.Await(1);
    ReceiveAll(fd);
  });
  const TestSocket socket = Dial(listener);
  socket.Send(kTls);
  Fill(socket);
  EXPECT_TRUE(AwaitNoConnection());
  EXPECT_EQ(Metric("sluice_proxy_stuck_calls_total"), 1);
  EXPECT_EQ(Metric("sluice_proxy_held_request_bytes"), 0);
  go_on.Add("");
}

TEST_F(TunnelStallTest, ATunnelWhoseClientReadsNothingEnds) {
  Start(milliseconds(100));
  EventLog ended;
  TestListener listener("127.0.0.1:0", [&](int fd) {
    ReceiveAtLeast(fd, 1);
    SendUntilFull(fd, 256 << 20);
    ReceiveAll(fd);
    ended.Add("");
  });
  const TestSocket socket = Dial(listener);
  socket.Send(kTls);
  EXPECT_TRUE(AwaitNoConnection());
  EXPECT_EQ(Metric("sluice_proxy_stuck_calls_total"), 1);
  EXPECT_EQ(ended.Await(1).size(), 1U) << "at its other end, too";
}

TEST_F(TunnelStallTest, ATunnelWhoseFarSideReadsNothingEnds) {
  Start(milliseconds(100));
  EventLog over;
  TestListener listener("127.0.0.1:0", [&](int) { over.Await(1); });
  const TestSocket socket = Dial(listener);
  EXPECT_GT(Fill(socket), 0U);
  EXPECT_TRUE(AwaitNoConnection());
  EXPECT_EQ(Metric("sluice_proxy_stuck_calls_total"), 1);
  over.Add("");
}

TEST_F(TunnelStallTest, ATunnelInWhichNothingWaitsMayBeQuiet) {
  Start(milliseconds(1));
  EventLog over;
  TestListener listener("127.0.0.1:0", [&](int fd) {
    SendAll(fd, ReceiveAtLeast(fd, 1));
    over.Await(1);
  });
  TestSocket quiet = Dial(listener);
  quiet.Send(kTls);
  EXPECT_EQ(quiet.ReceiveUntil(kTls), kTls);
  // Each of these calls ends at a different check of all connections.
  constexpr int kLooks = 2;
  TestHttp2Server worker(Says("!"));
  const auto client = NewClient({.stream_window_bytes = 0});
  for (int i = 0; i < kLooks; ++i) {
    const auto& stuck = client->Open(Head(worker.address()), FrameMessage("?"));
    EXPECT_TRUE(Await({client.get()}, [&] { return stuck.closed.has_value(); }));
  }
  EXPECT_EQ(Metric("sluice_proxy_connections"), 2);
  EXPECT_EQ(Metric("sluice_proxy_stuck_calls_total"), kLooks);
  over.Add("");
}

TEST_F(TunnelStallTest, ATunnelIsNotIdle) {
  options_.proxy.max_connections = 1;
  Start();
  TestListener listener("127.0.0.1:0", [](int fd) {
    while (true) {
      const std::string bytes = ReceiveAtLeast(fd, 1);
      if (bytes.empty()) return;
      SendAll(fd, bytes);
    }
  });
  TestSocket socket = Dial(listener);
  socket.Send(kTls);
  EXPECT_EQ(socket.ReceiveUntil(kTls), kTls);
  EXPECT_EQ(ConnectTo(address()).ReceiveAll(), "");
  socket.Send("more");
  EXPECT_EQ(socket.ReceiveUntil("more"), "more");
}

// The client disconnects while the proxy holds a number of bytes that is too small to stop reading. That number is some
// hundred kilobytes less than a full tunnel; the difference depends on the kernel.
TEST_F(TunnelStallTest, WhatTheClientSaidLastStillLeaves) {
  constexpr size_t kTries = 10;
  constexpr size_t kStepBytes = 128 << 10;
  Start();
  EventLog gone;
  EventLog received;
  TestListener listener("127.0.0.1:0", [&](int fd) {
    gone.Await(received.events().size() + 1);
    received.Add(absl::StrCat(ReceiveAll(fd).size()));
  });
  size_t most_bytes = SIZE_MAX;
  for (size_t i = 1; i <= kTries; ++i) {
    const size_t sent = Fill(Dial(listener), most_bytes);
    gone.Add("");
    EXPECT_EQ(received.Await(i).back(), absl::StrCat(sent));
    most_bytes = sent > kStepBytes ? sent - kStepBytes : 1;
  }
  EXPECT_TRUE(AwaitNoConnection());
  EXPECT_EQ(Metric("sluice_proxy_stuck_calls_total"), 0);
}

TEST_F(TunnelStallTest, WhatTheClientSaidBeforeTheFarSideWasThereStillLeaves) {
  Start();
  EventLog received;
  TestListener listener("127.0.0.1:0", [&](int fd) { received.Add(ReceiveAll(fd)); });
  {
    const TestSocket socket = Dial(listener);
    socket.Send(absl::StrCat(kTls, "the last words"));
  }
  EXPECT_THAT(received.Await(1), ElementsAre(absl::StrCat(kTls, "the last words")));
  EXPECT_TRUE(AwaitNoConnection());
}

TEST_F(TunnelStallTest, WhatTheClientSaidLastIsDroppedWhereNobodyTakesIt) {
  Start(milliseconds(100));
  EventLog over;
  TestListener listener("127.0.0.1:0", [&](int) { over.Await(1); });
  EXPECT_GT(Fill(Dial(listener)), 0U);
  EXPECT_TRUE(AwaitNoConnection());
  EXPECT_EQ(Metric("sluice_proxy_stuck_calls_total"), 1);
  over.Add("");
}

}  // namespace
}  // namespace sluice::testing
