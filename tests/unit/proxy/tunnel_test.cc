#include "lib/proxy/tunnel.h"

#include <string>
#include <thread>

#include <unistd.h>

#include "absl/strings/numbers.h"
#include "tests/notification.h"
#include "tests/unit/http2/raw_frames.h"
#include "tests/unit/net/far_end.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/send_window.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/proxy/proxy_fixture.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Connect(const std::string& target) {
  return absl::StrCat("CONNECT ", target, " HTTP/1.1\r\nHost: ", target, "\r\n\r\n");
}

void Echo(int fd) {
  while (true) {
    const std::string bytes = ReceiveAtLeast(fd, 1);
    if (bytes.empty()) return;
    SendAll(fd, bytes);
  }
}

// The bytes that a client of TLS sends first.
const std::string kClientHello("\x16\x03\x01\x02\x00\x01", 6);
// A fatal alert: access_denied.
const std::string kAccessDenied("\x15\x03\x03\x00\x02\x02\x31", 7);

class TunnelTest : public ProxyTest {
 protected:
  void SetUp() override {
    options_.proxy.pass_tunnels_from_loopback = true;
    options_.on_event = [this](const ProxyEvent& event) {
      const char* kinds[] = {"handshake", "refused", "worker", "other"};
      EXPECT_FALSE(event.client.empty());
      log_.Add(
          absl::StrCat(kinds[static_cast<int>(event.kind)], " ", event.target, " ", event.carries, ": ", event.why));
    };
  }
  void TearDown() override { proxy_.reset(); }

  // Returns the proxy's reply to a client that sends only this request.
  std::string Answer(const std::string& request) const {
    TestSocket socket = ConnectTo(address());
    socket.Send(request);
    return socket.ReceiveAll();
  }
  // Returns an open tunnel.
  TestSocket Dial(const std::string& target) const {
    TestSocket socket = ConnectTo(address());
    socket.Send(Connect(target));
    EXPECT_THAT(socket.ReceiveUntil("\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
    return socket;
  }

  EventLog log_;
};

TEST_F(TunnelTest, CallsPassThroughATunnelToTheirWorker) {
  StartProxy();
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.Answer(call.head().authority); });
  Http2Peer client(Dial(worker.address()));
  const auto& call = client.Open(Head("the.name.of.its.own"), FrameMessage("?"));
  EXPECT_TRUE(Await({&client}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.data, FrameMessage("the.name.of.its.own")) << "the tunnel says where it goes";
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "connect"), 1);
}

// A gateway serves many names with the certificate of the proxy.
TEST_F(TunnelTest, AnAuthorityThatTheClientMayNotCallIsReplaced) {
  options_.workers = {"localhost", "*.search.svc", "unix:*"};
  StartProxy();
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.Answer(call.head().authority); });
  const std::string target = "localhost" + worker.address().substr(worker.address().rfind(':'));
  Http2Peer client(Dial(target));
  const auto authority_at_worker = [&](const std::string& authority) {
    const auto& call = client.Open(Head(authority), FrameMessage("?"));
    EXPECT_TRUE(Await({&client}, [&] { return call.closed.has_value(); }));
    return call.data;
  };
  EXPECT_EQ(authority_at_worker("ads.svc:7000"), FrameMessage(target));
  EXPECT_EQ(authority_at_worker("ads.svc"), FrameMessage(target));
  for (const char* authority : {"unix:/run/w", "http://a.search.svc:7000", "/a.search.svc", ""}) {
    EXPECT_EQ(authority_at_worker(authority), FrameMessage(target)) << authority;
  }
  EXPECT_EQ(authority_at_worker("a.search.svc:7000"), FrameMessage("a.search.svc:7000"));
  EXPECT_EQ(authority_at_worker("a.search.svc"), FrameMessage("a.search.svc")) << "a client may omit the port";
}

TEST_F(TunnelTest, AClientNeedNotWaitForItsTunnel) {
  StartProxy();
  TestHttp2Server worker(Says("!"));  // its response comes in one piece
  for (const size_t piece : {size_t{1}, size_t{50}, size_t{10000}}) {
    TestSocket socket = ConnectTo(address());
    const std::string bytes =
        absl::StrCat(Connect(worker.address()), raw::kPreface, raw::Settings(), raw::Headers(1, Head("w")),
                     raw::Data(1, FrameMessage("?"), /*end_stream=*/true));
    for (size_t at = 0; at < bytes.size(); at += piece) socket.Send(bytes.substr(at, piece));
    EXPECT_THAT(socket.ReceiveUntil(FrameMessage("!")), HasSubstr(FrameMessage("!"))) << piece;
  }
}

TEST_F(TunnelTest, ATargetThatMayNotBeReachedIsAForbiddenConnect) {
  StartProxy();
  for (const char* target : {"169.254.169.254:80", "[fe80::1]:80", "[::ffff:169.254.169.254]:80", "0.0.0.0:80",
                             "168.63.129.16:80", "[fd00:ec2::254%1]:80"}) {
    EXPECT_THAT(Answer(Connect(target)),
                AllOf(StartsWith("HTTP/1.1 403 Forbidden\r\n"), HasSubstr("is never a worker")))
        << target;
  }
  EXPECT_THAT(Answer(Connect(address())),
              AllOf(HasSubstr("; error=http_request_denied; "), HasSubstr("is this proxy")));
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "refused"), 7);
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "other_tunnel"), 0);
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "connect"), 0) << "a connection is counted once";
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
}

TEST_F(TunnelTest, ATargetThatCannotBeReachedIsARefusedConnect) {
  StartProxy();
  EXPECT_THAT(Answer(Connect("unix:/run/docker.sock")), StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  EXPECT_THAT(Answer(Connect("no-port.invalid")), StartsWith("HTTP/1.1 502 Bad Gateway\r\n"));
  EXPECT_THAT(Answer(Connect("no.such.name.invalid:80")), StartsWith("HTTP/1.1 502 Bad Gateway\r\n"));
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "refused"), 1);
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "unreachable"), 2);
  EXPECT_THAT(log_.events(), ElementsAre(StartsWith("refused unix:/run/docker.sock : \"unix:"),
                                         StartsWith("refused no-port.invalid:443 : no-port.invalid:443: look up"),
                                         StartsWith("refused no.such.name.invalid:80 : no.such.name.invalid:80: ")));
}

TEST_F(TunnelTest, LoopbackThatIsNoWorkerIsForbiddenToPassedTunnels) {
  options_.workers = {"10.0.0.0/8"};
  StartProxy();
  TestListener listener("127.0.0.1:0", Echo);
  const std::string target = listener.address().text;
  const std::string by_name = "localhost" + target.substr(target.rfind(':'));
  for (const std::string& name : {target, by_name}) {
    EXPECT_THAT(Answer(Connect(name)),
                AllOf(StartsWith("HTTP/1.1 403 "), HasSubstr(absl::StrCat("\"", target, "\" is a loopback address"))));
  }
  EXPECT_THAT(log_.events(), Each(HasSubstr("such as 127.0.0.0/8")));
  EXPECT_THAT(log_.events(), Contains(StartsWith(absl::StrCat("refused ", target, " : "))));
  EXPECT_THAT(log_.events(), Contains(StartsWith(absl::StrCat("refused ", by_name, " : "))));
}

TEST_F(TunnelTest, WithoutPassedTunnelsOnlyWorkersAreReached) {
  options_.proxy.pass_tunnels = false;
  StartProxy();
  EXPECT_THAT(Answer(Connect("8.8.8.8:53")),
              AllOf(StartsWith("HTTP/1.1 403 "), HasSubstr("add a pattern for it to workers")));
}

// A mesh or a port forwarding connects from there for strangers.
TEST_F(TunnelTest, AClientOnLoopbackReachesNoOtherHostsByDefault) {
  options_.proxy.pass_tunnels_from_loopback = ProxyOptions().pass_tunnels_from_loopback;
  StartProxy();
  EXPECT_THAT(Answer(Connect("8.8.8.8:53")), StartsWith("HTTP/1.1 403 "));
}

// Its bytes arrive while the proxy looks for the target.
TEST_F(TunnelTest, AClientNeedNotWaitForItsDenial) {
  options_.workers = {"10.0.0.0/8"};
  StartProxy();
  for (const char* target : {"127.0.0.1:1", "localhost:1"}) {
    for (const std::string& bytes : {absl::StrCat(raw::kPreface, raw::Settings(), raw::Headers(1, Head("w"))),
                                     kClientHello, std::string("GET / HTTP/1.1\r\n\r\n")}) {
      EXPECT_THAT(Answer(Connect(target) + bytes), StartsWith("HTTP/1.1 403 ")) << target;
    }
  }
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "refused"), 6);
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
}

TEST_F(TunnelTest, OtherRequestsGetAnAnswer) {
  StartProxy();
  EXPECT_THAT(Answer("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), StartsWith("HTTP/1.1 501 Not Implemented\r\n"));
  EXPECT_EQ(Answer(kClientHello), "");
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
  EXPECT_THAT(log_.events(), ElementsAre(HasSubstr("this proxy carries gRPC, by HTTP/2 or by CONNECT"),
                                         HasSubstr("the client sends TLS, and this address takes plaintext HTTP/2")));
}

TEST_F(TunnelTest, WhatIsNoHttp2IsPassedOnToTheWorker) {
  options_.proxy.schedule_worker_tunnels = false;
  StartProxy();
  TestListener listener("127.0.0.1:0", Echo);
  for (const std::string& bytes : {std::string("\x16\x03\x01 hello", 9), std::string("GET / HTTP/1.1\r\n\r\n"),
                                   Connect("next.proxy:1") + "more"}) {
    TestSocket socket = Dial(listener.address().text);
    socket.Send(bytes);
    EXPECT_EQ(socket.ReceiveUntil(bytes), bytes);
    socket.Send("again");
    EXPECT_EQ(socket.ReceiveUntil("again"), "again");
  }
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "worker_tunnel"), 3);
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
  const std::string target = listener.address().text;
  const auto unscheduled = [&](const char* carries) {
    return StartsWith(absl::StrCat("worker ", target, " ", carries, ": the proxy schedules only gRPC in plaintext"));
  };
  EXPECT_THAT(log_.events(), ElementsAre(unscheduled("TLS"), unscheduled("HTTP/1.1"), unscheduled("HTTP/1.1")));
}

TEST_F(TunnelTest, ATunnelToAWorkerOfBytesCarriesHttp2AsItComes) {
  options_.workers = {"bytes:127.0.0.0/8"};
  StartProxy();
  TestListener listener("127.0.0.1:0", Echo);
  TestSocket socket = Dial(listener.address().text);
  socket.Send(std::string(raw::kPreface));
  EXPECT_EQ(socket.ReceiveUntil(raw::kPreface), raw::kPreface);
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "scheduled_tunnel"), 1);
}

TEST_F(TunnelTest, TrafficThatPassesUnscheduledIsCounted) {
  options_.proxy.schedule_worker_tunnels = false;
  StartProxy();
  TestListener listener("127.0.0.1:0", Echo);
  {
    TestSocket socket = Dial(listener.address().text);
    EXPECT_EQ(Metric("sluice_proxy_tunnels"), 0) << "it may carry calls";
    socket.Send(kClientHello);
    EXPECT_EQ(socket.ReceiveUntil(kClientHello), kClientHello);
    EXPECT_EQ(Metric("sluice_proxy_tunnels", "to", "worker"), 1);
    EXPECT_EQ(Metric("sluice_proxy_tunnels", "to", "other"), 0);
    EXPECT_EQ(Metric("sluice_proxy_tunnel_received_bytes_total", "to", "worker"), kClientHello.size());
  }
  EXPECT_TRUE(AwaitMetric("sluice_proxy_tunnels", 0));
}

TEST_F(TunnelTest, TunnelsToWorkersMayBeRefused) {
  options_.proxy.pass_worker_tunnels = false;
  StartProxy();
  TestListener listener("127.0.0.1:0", Echo);
  TestSocket socket = Dial(listener.address().text);
  socket.Send(kClientHello);
  EXPECT_EQ(socket.ReceiveAll(), kAccessDenied);
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "refused"), 1);
  EXPECT_THAT(log_.events(), ElementsAre(AllOf(StartsWith("refused"), HasSubstr("TLS: tunnels.to_workers is off"))));
}

// The tunnel may end in the turn in which the proxy ends.
TEST_F(TunnelTest, TheProxyMayEndAtTheMomentAtWhichATunnelDoes) {
  for (int i = 0; i < 20; ++i) {
    StartProxy();
    auto listener = std::make_unique<TestListener>("127.0.0.1:0", Echo);
    TestSocket socket = Dial(listener->address().text);
    socket.Send("\x16\x03\x01");
    ReceiveAtLeast(socket.fd(), 3);
    listener.reset();
    proxy_.reset();
  }
}

// The worker sends without end, and the client reads nothing.
TEST_F(TunnelTest, TheWindowOfATunnelToAWorkerIsBounded) {
  // The buffer of a TCP socket grows without bound; the buffer of a Unix socket does not.
  options_.listeners = {{.address = absl::StrCat("unix-abstract:sluice-tunnel-test-", getpid()), .route = ""}};
  options_.proxy.schedule_worker_tunnels = false;
  options_.proxy.worker_tunnel_receive_bytes = 16 << 10;
  StartProxy();
  EventLog windows;
  EventLog took;
  TestListener listener("127.0.0.1:0", [&](int fd) {
    windows.Add(absl::StrCat(SendWindow(fd)));
    ReceiveAtLeast(fd, 1);
    took.Add(absl::StrCat(SendUntilFull(fd, 256 << 20)));
  });
  const auto number = [](const EventLog& log, size_t which) {
    int bytes = 0;
    EXPECT_TRUE(absl::SimpleAtoi(log.Await(which + 1).at(which), &bytes));
    return bytes;
  };
  {
    TestSocket socket = Dial(listener.address().text);
    socket.Send("\x16");
    EXPECT_LE(number(windows, 0), 32 << 10);
    EXPECT_GT(number(took, 0), 16 << 10);
    EXPECT_LT(number(took, 0), 2 << 20) << "with what the proxy and the client's socket hold";
  }
  ProxyServer::Options changed = options_;
  changed.proxy.worker_tunnel_receive_bytes = 0;
  ASSERT_TRUE(proxy_->Reconfigure(changed).ok());
  TestSocket socket = Dial(listener.address().text);
  socket.Send("\x16");
  EXPECT_GT(number(windows, 1), 32 << 10) << "the kernel's choice, for tunnels that begin from now on";
}

// After its user timeout, Linux would end a connection whose other end exists and reads nothing.
TEST_F(TunnelTest, NeitherEndHasToReadForAsLongAsItIsThere) {
  StartProxy();
  // An option of the proxy's socket, read on the thread that may close it.
  const auto option = [this](int fd, int level, int name) {
    int value = -1;
    link_->Await([&](LinkLoop&) { value = SocketOption(FarEnd(fd), level, name); });
    return value;
  };
  EventLog timeouts;
  TestListener listener("127.0.0.1:0", [&](int fd) {
    ReceiveAtLeast(fd, 1);  // so that the tunnel is open
    timeouts.Add(absl::StrCat(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT)));
    ReceiveAtLeast(fd, 1);  // until the client goes
  });
  TestSocket socket = Dial(listener.address().text);
  socket.Send("\x16");
  // The far end is found among all descriptors of the process, so none may come or go meanwhile.
  EXPECT_THAT(timeouts.Await(1), ::testing::ElementsAre("0"));
  EXPECT_EQ(option(socket.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
  EXPECT_EQ(option(socket.fd(), SOL_SOCKET, SO_KEEPALIVE), 1);
}

TEST_F(TunnelTest, ManyBytesPassBothWays) {
  StartProxy();
  TestListener listener("127.0.0.1:0", Echo);
  // The look-up is slow, so that the client fills the tunnel before the worker is connected.
  TestSocket socket = Dial("localhost" + listener.address().text.substr(listener.address().text.rfind(':')));
  std::string bytes(8 << 20, '\x16');
  for (size_t i = 1; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  std::thread writer([&] { socket.Send(bytes); });
  std::string echoed;
  while (echoed.size() < bytes.size()) {
    const std::string part = ReceiveAtLeast(socket.fd(), 1);
    if (part.empty()) break;
    echoed += part;
  }
  writer.join();
  EXPECT_TRUE(echoed == bytes) << echoed.size();
}

TEST_F(TunnelTest, WhatTheWorkerSaidLastStillComes) {
  StartProxy();
  const std::string last(2 << 20, 'z');
  TestListener listener("127.0.0.1:0", [&](int fd) {
    ReceiveAtLeast(fd, 1);
    SendAll(fd, last);
  });
  {
    TestSocket socket = Dial(listener.address().text);
    socket.Send("\x16");
    EXPECT_TRUE(socket.ReceiveAll() == last);
  }
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
}

TEST_F(TunnelTest, AClientThatSaysNothingIsNotWaitedForLong) {
  options_.proxy.opening_timeout = std::chrono::milliseconds(50);
  StartProxy();
  TestHttp2Server worker(Says("!"));
  EXPECT_EQ(Answer(""), "");
  EXPECT_EQ(Answer("CONNECT a"), "");
  EXPECT_EQ(Answer("PRI * HTTP/2"), "");
  ExpectServes(worker.address());
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
}

}  // namespace
}  // namespace sluice::testing
