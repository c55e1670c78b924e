#include "lib/tcp/tcp_connection.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lib/net/asio_executor.h"
#include "tests/unit/net/far_end.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/test_listener.h"

namespace sluice {
namespace {

using testing::EventLog;
using testing::FarEnd;
using testing::RunOn;
using testing::SocketOption;
using testing::TestListener;

struct Connected final : StreamSocketEvents {
  void OnConnected() override { log.Add("connected"); }
  void OnBytes(absl::string_view) override {}
  void OnDisconnected(absl::Status why) override { log.Add(why.ToString()); }

  EventLog log;
};

// Checks the socket options of a stream to `listener`.
class TcpConnectionTest : public ::testing::Test {
 protected:
  struct Options {
    int user_timeout_ms = -1;
    int keeps_alive = -1;
    int probed_after_s = -1;
  };
  Options See(bool may_stall) {
    Connected events;
    std::unique_ptr<StreamSocket> socket;
    EventLog looked;
    Options seen;
    TestListener listener("127.0.0.1:0", [&](int fd) {
      EXPECT_EQ(events.log.Await(1), std::vector<std::string>{"connected"});
      RunOn(executor_, [&] {
        const int far = FarEnd(fd);
        seen = {.user_timeout_ms = SocketOption(far, IPPROTO_TCP, TCP_USER_TIMEOUT),
                .keeps_alive = SocketOption(far, SOL_SOCKET, SO_KEEPALIVE),
                .probed_after_s = SocketOption(far, IPPROTO_TCP, TCP_KEEPIDLE)};
      });
      looked.Add("");
    });
    RunOn(executor_, [&] { socket = executor_.Connect(listener.address(), {.may_stall = may_stall}, events); });
    EXPECT_EQ(looked.Await(1).size(), 1U);
    RunOn(executor_, [&] { socket.reset(); });
    return seen;
  }

  AsioExecutor executor_{AsioExecutor::Options{.often_probed_streams = 1}};
};

// Linux ends a connection after the user timeout if its peer keeps the window closed, even if the peer is alive.
TEST_F(TcpConnectionTest, OnlyAPeerThatMayStallKeepsItsWindowShutForLong) {
  const Options bounded = See(/*may_stall=*/false);
  EXPECT_GT(bounded.user_timeout_ms, 0);
  EXPECT_LT(bounded.user_timeout_ms, 10'000);
  EXPECT_EQ(bounded.keeps_alive, 1);
  const Options patient = See(/*may_stall=*/true);
  EXPECT_EQ(patient.user_timeout_ms, 0);
  EXPECT_EQ(patient.keeps_alive, 1) << "one that is gone is noticed";
}

TEST_F(TcpConnectionTest, ManyThatMayStallAreProbedRarely) {
  constexpr int kOftenSeconds = 7;
  EXPECT_LE(See(/*may_stall=*/true).probed_after_s, kOftenSeconds);
  Connected events;
  EventLog accepted;
  EventLog over;
  auto listener = std::make_unique<TestListener>("127.0.0.1:0", [&](int) {
    accepted.Add("");
    over.Await(1);
  });
  std::unique_ptr<StreamSocket> first;
  RunOn(executor_, [&] { first = executor_.Connect(listener->address(), {.may_stall = true}, events); });
  EXPECT_EQ(events.log.Await(1).size(), 1U);
  EXPECT_EQ(accepted.Await(1).size(), 1U) << "FarEnd looks at all descriptors, so no thread may open or close one";
  const int rarely_s = See(/*may_stall=*/true).probed_after_s;
  EXPECT_GE(rarely_s, 90);
  EXPECT_LE(rarely_s, 131) << "the next grain of the kernel's timers is 16 s";
  EXPECT_LE(See(/*may_stall=*/false).probed_after_s, kOftenSeconds);
  RunOn(executor_, [&] { first.reset(); });
  over.Add("");
  listener.reset();
  EXPECT_LE(See(/*may_stall=*/true).probed_after_s, kOftenSeconds);
}

}  // namespace
}  // namespace sluice
