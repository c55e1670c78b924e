// Tunnels of which one direction has ended, or which one end has reset.
#include <chrono>
#include <string>

#include <sys/socket.h>
#include <unistd.h>

#include "lib/net/worker_address.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/proxy/proxy_fixture.h"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

constexpr char kRequest[] = "GET / HTTP/1.0\r\n\r\n";

// Parameter: whether tunnels take turns in the schedule.
class HalfClosedTunnelTest : public ProxyTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override { options_.proxy.schedule_worker_tunnels = GetParam(); }
  void TearDown() override { proxy_.reset(); }

  static std::string Connect(const TestListener& worker) {
    return absl::StrCat("CONNECT ", worker.address().text, " HTTP/1.1\r\n\r\n");
  }
  TestSocket Dial(const TestListener& worker) const {
    TestSocket socket = ConnectTo(address());
    socket.Send(Connect(worker));
    EXPECT_THAT(socket.ReceiveUntil("\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
    return socket;
  }
  // A client that asks for a tunnel by SOCKS5 or CONNECT, and sends no more with its request.
  TestSocket Ask(const TestListener& worker, bool socks) const {
    TestSocket socket = ConnectTo(address());
    const int port = ParseWorkerTarget(worker.address().text)->port;
    const std::string request = absl::StrCat(absl::string_view("\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01", 11),
                                             std::string{static_cast<char>(port >> 8), static_cast<char>(port)});
    socket.Send(socks ? request : Connect(worker));
    shutdown(socket.fd(), SHUT_WR);
    return socket;
  }
  bool AwaitNoConnection() { return AwaitMetric("sluice_proxy_connections", 0); }
};

INSTANTIATE_TEST_SUITE_P(Scheduled, HalfClosedTunnelTest, ::testing::Bool());

TEST_P(HalfClosedTunnelTest, AClientThatSendsNoMoreGetsItsWholeResponse) {
  StartProxy();
  const std::string response(2 << 20, 'z');
  EventLog requests;
  TestListener worker("127.0.0.1:0", [&](int fd) {
    requests.Add(ReceiveAll(fd));
    SendAll(fd, response);
  });
  TestSocket client = Dial(worker);
  client.Send(kRequest);
  shutdown(client.fd(), SHUT_WR);
  EXPECT_THAT(requests.Await(1), ElementsAre(kRequest));
  EXPECT_EQ(client.ReceiveAll().size(), response.size());
  EXPECT_TRUE(AwaitNoConnection());
}

TEST_P(HalfClosedTunnelTest, AClientMaySendAllBeforeItsTunnelIsOpen) {
  StartProxy();
  for (const char* request : {kRequest, "PRI * HTTP/2"}) {  // the second could be the start of HTTP/2
    TestListener worker("127.0.0.1:0", [&](int fd) { SendAll(fd, "<" + ReceiveAll(fd) + ">"); });
    TestSocket client = ConnectTo(address());
    client.Send(Connect(worker) + request);
    shutdown(client.fd(), SHUT_WR);
    EXPECT_THAT(client.ReceiveAll(), ::testing::EndsWith(absl::StrCat("\r\n\r\n<", request, ">")));
    EXPECT_TRUE(AwaitNoConnection());
  }
}

// A dump of a server, or `nc -N host port </dev/null`.
TEST_P(HalfClosedTunnelTest, AClientThatSendsNothingGetsAllBytesOfItsWorker) {
  StartProxy();
  const std::string banner(100'000, 'b');
  TestListener worker("127.0.0.1:0", [&](int fd) {
    EXPECT_EQ(HowItEnds(fd), "end");
    SendAll(fd, banner);
  });
  TestSocket client = Dial(worker);
  shutdown(client.fd(), SHUT_WR);
  EXPECT_EQ(client.ReceiveAll().size(), banner.size());
  EXPECT_TRUE(AwaitNoConnection());
}

TEST_P(HalfClosedTunnelTest, TheEndOfAClientMayComeWithItsRequest) {
  StartProxy();
  const std::string banner(100'000, 'b');
  for (const bool socks : {false, true}) {
    TestListener worker("127.0.0.1:0", [&](int fd) {
      EXPECT_EQ(HowItEnds(fd), "end");
      SendAll(fd, banner);
    });
    const std::string received = Ask(worker, socks).ReceiveAll();
    EXPECT_THAT(received, ::testing::EndsWith(banner)) << received.substr(0, 100);
    EXPECT_TRUE(AwaitNoConnection());
  }
}

TEST_P(HalfClosedTunnelTest, AWorkerThatSendsNoMoreStillReceives) {
  StartProxy();
  const std::string upload(2 << 20, 'u');
  EventLog received;
  TestListener worker("127.0.0.1:0", [&](int fd) {
    ReceiveAtLeast(fd, 1);
    SendAll(fd, "go on");
    shutdown(fd, SHUT_WR);
    received.Add(absl::StrCat(ReceiveAll(fd).size()));
  });
  TestSocket client = Dial(worker);
  client.Send("?");
  EXPECT_EQ(client.ReceiveAll(), "go on");
  client.Send(upload);
  shutdown(client.fd(), SHUT_WR);
  EXPECT_THAT(received.Await(1), ElementsAre(absl::StrCat(upload.size())));
  EXPECT_TRUE(AwaitNoConnection());
}

TEST_P(HalfClosedTunnelTest, AResetPassesBothWays) {
  StartProxy();
  EventLog ends;
  TestListener worker("127.0.0.1:0", [&](int fd) {
    const std::string request = ReceiveAtLeast(fd, 1);
    if (request == "reset me") return Reset(fd);
    SendAll(fd, request);
    ends.Add(HowItEnds(fd));
  });
  {
    TestSocket client = Dial(worker);
    client.Send("?");
    EXPECT_EQ(client.ReceiveUntil("?"), "?");
    client.Break();
    EXPECT_THAT(ends.Await(1), ElementsAre("reset"));
  }
  TestSocket client = Dial(worker);
  client.Send("reset me");
  EXPECT_EQ(HowItEnds(client.fd()), "reset");
  EXPECT_TRUE(AwaitNoConnection());
}

TEST_P(HalfClosedTunnelTest, AClientThatIsGoneEndsItsTunnel) {
  StartProxy();
  EventLog ends;
  TestListener worker("127.0.0.1:0", [&](int fd) {
    SendAll(fd, ReceiveAtLeast(fd, 1));
    HowItEnds(fd);  // the client has closed its socket, as it seems only in one direction
    SendAll(fd, "nobody reads this");
    ends.Add(HowItEnds(fd));
  });
  {
    TestSocket client = Dial(worker);
    client.Send("?");
    EXPECT_EQ(client.ReceiveUntil("?"), "?");
  }
  EXPECT_TRUE(AwaitNoConnection());
  EXPECT_EQ(ends.Await(1).size(), 1U);
}

TEST_P(HalfClosedTunnelTest, AHalfClosedTunnelInWhichNothingMovesEnds) {
  options_.proxy.half_closed_timeout = std::chrono::milliseconds(100);
  StartProxy();
  EventLog over;
  TestListener worker("127.0.0.1:0", [&](int fd) {
    SendAll(fd, ReceiveAll(fd));
    over.Await(1);
  });
  TestSocket client = Dial(worker);
  client.Send("?");
  shutdown(client.fd(), SHUT_WR);
  EXPECT_EQ(client.ReceiveUntil("?"), "?");
  EXPECT_EQ(client.ReceiveAll(), "");
  EXPECT_TRUE(AwaitNoConnection());
  over.Add("");
}

TEST_P(HalfClosedTunnelTest, ATunnelMayBeIdleForAsLongAsTheOptionsPermit) {
  options_.proxy.tunnel_idle_timeout = std::chrono::milliseconds(100);
  StartProxy();
  EventLog ends;
  TestListener worker("127.0.0.1:0", [&](int fd) {
    SendAll(fd, ReceiveAtLeast(fd, 1));
    ends.Add(HowItEnds(fd));
  });
  TestSocket client = Dial(worker);
  client.Send("?");
  EXPECT_EQ(client.ReceiveUntil("?"), "?");
  EXPECT_EQ(HowItEnds(client.fd()), "reset");
  EXPECT_EQ(ends.Await(1).size(), 1U);
}

}  // namespace
}  // namespace sluice::testing
