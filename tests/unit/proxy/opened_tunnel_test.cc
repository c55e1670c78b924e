// Connections that are tunnels without a request for one: routes of plain TCP, and redirected connections.
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>

#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/net/socket_address.h"
#include "tests/unit/http2/raw_frames.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/proxy/proxy_loop_fixture.h"

namespace sluice::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Sends back what it receives, in angle brackets.
void Quote(int fd) {
  while (true) {
    const std::string bytes = ReceiveAtLeast(fd, 1);
    if (bytes.empty()) return;
    SendAll(fd, absl::StrCat("<", bytes, ">"));
  }
}

// Whether a new connection to this address is reset, perhaps before its connect returns.
bool ResetsClientOf(const std::string& address) {
  const auto endpoint = *ParseSocketAddress(address, SocketUse::kConnect);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  char byte = 0;
  const bool broken =
      connect(fd, endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0 || recv(fd, &byte, 1, 0) < 0;
  const bool reset = broken && errno == ECONNRESET;
  close(fd);
  return reset;
}

class TcpRouteTest : public ProxyTest {
 protected:
  void TearDown() override { proxy_.reset(); }
  void Start(const std::string& workers) {
    options_.listeners = {{.address = "127.0.0.1:0", .route = workers, .kind = ProxyServer::Listener::Kind::kTunnel}};
    options_.on_event = [this](const ProxyEvent& event) { log_.Add(absl::StrCat(event.target, ": ", event.why)); };
    StartProxy();
  }

  EventLog log_;
};

TEST_F(TcpRouteTest, EachConnectionIsATunnelWhateverItCarries) {
  TestListener worker("127.0.0.1:0", Quote);
  options_.proxy.pass_worker_tunnels = false;  // for clients that choose their targets
  Start(worker.address().text);
  for (const std::string& bytes : {std::string("PING\r\n"), std::string("CONNECT a:1 HTTP/1.1\r\n\r\n"),
                                   std::string("\x05\x01\x00", 3), std::string(raw::kPreface)}) {
    TestSocket client = ConnectTo(address());
    client.Send(bytes);
    EXPECT_EQ(client.ReceiveUntil(">"), absl::StrCat("<", bytes, ">"));
  }
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "scheduled_tunnel"), 4);
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
}

TEST_F(TcpRouteTest, AClientMayOnlyRead) {
  TestListener worker("127.0.0.1:0", [](int fd) { SendAll(fd, "the time"); });
  Start(worker.address().text);
  TestSocket client = ConnectTo(address());
  shutdown(client.fd(), SHUT_WR);
  EXPECT_EQ(client.ReceiveAll(), "the time");
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
}

TEST_F(TcpRouteTest, AWorkerThatIsNotReachedIsAReset) {
  Start(AddressOfNobody().text);
  EXPECT_TRUE(ResetsClientOf(address()));
  EXPECT_THAT(log_.Await(1), ElementsAre(HasSubstr("Connection refused")));
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "unreachable"), 1);
}

TEST_F(TcpRouteTest, AWorkerThatNoPatternPermitsIsAReset) {
  TestListener worker("127.0.0.1:0", Quote);
  options_.workers = {"10.0.0.0/8"};
  Start(worker.address().text);
  EXPECT_TRUE(ResetsClientOf(address()));
  EXPECT_THAT(log_.Await(1), ElementsAre(HasSubstr("add a pattern to workers")));
}

// The listener gives each connection this origin.
class OpenedTunnelTest : public ProxyLoopTest {
 protected:
  void Start(const std::string& target, ClientOrigin::Opening opening, bool local = true) {
    StartProxy();
    executor_.Await([&] {
      proxy_->SetOnEvent([this](const ProxyEvent& event) { log_.Add(absl::StrCat(event.target, ": ", event.why)); });
      auto listener = AsioListener::Listen(
          executor_, "127.0.0.1:0", {.half_open = true}, [=, this](const AcceptedConnection& connection) {
            const bool asks = opening == ClientOrigin::Opening::kRequest;
            proxy_->Accept({.route = target.empty() && !asks ? opened_->address() : target,
                            .local = local,
                            .peer = connection.peer,
                            .opening = opening,
                            .loops = &loops_},
                           connection.start);
          });
      ASSERT_TRUE(listener.ok()) << listener.status();
      opened_ = *std::move(listener);
    });
  }
  void Permit(const std::vector<std::string>& workers) {
    executor_.Await([&] { proxy_->Reconfigure(*ClientPolicies::Create(workers, {}), proxy_->options()); });
  }
  void TearDown() override {
    executor_.Await([&] { opened_.reset(); });
    ProxyLoopTest::TearDown();
  }
  size_t Connections() {
    size_t connections = 0;
    executor_.Await([&] { connections = proxy_->connections(); });
    return connections;
  }

  EventLog log_;
  // On the link's thread.
  RedirectLoops loops_;
  std::unique_ptr<AsioListener> opened_;
};

// Clients of other hosts, which ask by CONNECT.
class RemoteTunnelTest : public OpenedTunnelTest {
 protected:
  void Start(const std::vector<std::string>& workers) {
    OpenedTunnelTest::Start("", ClientOrigin::Opening::kRequest, /*local=*/false);
    Permit(workers);
  }
  // Returns what comes in a tunnel to the target. The first byte is that of TLS.
  std::string Through(const std::string& target) {
    TestSocket client = ConnectTo(opened_->address());
    client.Send(absl::StrCat("CONNECT ", target, " HTTP/1.1\r\nHost: a\r\n\r\n"));
    std::string received = client.ReceiveUntil("\r\n\r\n");
    if (!absl::StartsWith(received, "HTTP/1.1 200")) return received + client.ReceiveAll();
    client.Send("\x16");
    return client.ReceiveUntil(">");
  }
};

TEST_F(RemoteTunnelTest, ItsWorkerMustBePermittedWithItsPort) {
  TestListener worker("127.0.0.1:0", Quote);
  Start({"127.0.0.0/8"});
  EXPECT_EQ(Through(worker.address().text), std::string("\x15\x03\x03\x00\x02\x02\x31", 7)) << "access_denied";
  EXPECT_THAT(log_.Await(1), ElementsAre(HasSubstr("only by the pattern 127.0.0.0/8, which has no port")));
  Permit({worker.address().text});
  EXPECT_EQ(Through(worker.address().text), "<\x16>");
}

TEST_F(RemoteTunnelTest, TheReasonOfAFailureIsOnlyInTheLog) {
  Start({"127.0.0.0/8"});
  const std::string nobody = AddressOfNobody().text;
  const std::string response = Through(nobody);
  EXPECT_THAT(response, ::testing::StartsWith("HTTP/1.1 502 "));
  EXPECT_THAT(response, HasSubstr(nobody + " cannot be reached; the log of the proxy has the reason"));
  EXPECT_THAT(response, ::testing::Not(HasSubstr("refused")));
  EXPECT_THAT(log_.Await(1), ElementsAre(HasSubstr("Connection refused")));
  Http2Peer client(ConnectTo(opened_->address()));
  EXPECT_EQ(Call(client, nobody),
            absl::StrCat("14 ", nobody, " cannot be reached; the log of the proxy has the reason"));
  EXPECT_THAT(log_.Await(2).back(), HasSubstr("Connection refused"));
}

TEST_F(OpenedTunnelTest, TheAddressesOfARouteTakeTurns) {
  TestListener a("127.0.0.1:0", Quote);
  const std::string port(absl::StripPrefix(a.address().text, "127.0.0.1:"));
  Start("w.test:" + port, ClientOrigin::Opening::kRoute);
  SetName("w.test:" + port, std::vector<std::string>{"127.0.0.1:" + port, "127.0.0.2:" + port, "127.0.0.3:" + port});
  for (int i = 0; i < 4; ++i) {
    TestSocket client = ConnectTo(opened_->address());
    client.Send("?");
    EXPECT_EQ(client.ReceiveUntil(">"), "<?>");  // from the first, because the others refuse
  }
  EXPECT_THAT(ConnectedTo(),
              ElementsAre("127.0.0.1:" + port, "127.0.0.2:" + port, "127.0.0.3:" + port, "127.0.0.1:" + port,
                          "127.0.0.3:" + port, "127.0.0.1:" + port, "127.0.0.1:" + port));
}

TEST_F(OpenedTunnelTest, ARedirectedConnectionIsATunnelToItsDestination) {
  TestListener worker("127.0.0.1:0", Quote);
  Start(worker.address().text, ClientOrigin::Opening::kRedirected);
  TestSocket client = ConnectTo(opened_->address());
  client.Send("?");
  EXPECT_EQ(client.ReceiveUntil(">"), "<?>") << "and nothing before";
}

// Plaintext HTTP/2 that is not gRPC, such as Connect's, passes as it comes.
TEST_F(OpenedTunnelTest, ARedirectedConnectionToAWorkerOfBytesCarriesHttp2AsItComes) {
  TestListener worker("127.0.0.1:0", Quote);
  Start(worker.address().text, ClientOrigin::Opening::kRedirected);
  Permit({"127.0.0.0/8", "bytes:" + worker.address().text});
  TestSocket client = ConnectTo(opened_->address());
  client.Send(std::string(raw::kPreface));
  EXPECT_EQ(client.ReceiveUntil(">"), absl::StrCat("<", raw::kPreface, ">"));
}

// The worker counts each SETTINGS and each acknowledgement of its client.
std::string QuoteFrames(int fd) {
  std::string received = ReceiveAtLeast(fd, sizeof(raw::kPreface) - 1);
  SendAll(fd, raw::Settings());
  while (received.find("the end") == std::string::npos) received += ReceiveAtLeast(fd, 1);
  SendAll(fd, absl::StrCat("<", received, ">"));
  return received;
}

TEST_F(OpenedTunnelTest, Http2ThatIsNotGrpcPassesAsItComes) {
  TestListener worker("127.0.0.1:0", QuoteFrames);
  Start(worker.address().text, ClientOrigin::Opening::kRedirected);
  const std::string request = raw::Headers(1, {{":method", "GET"}, {":path", "/"}});
  TestSocket eager = ConnectTo(opened_->address());
  const std::string bytes = absl::StrCat(raw::kPreface, raw::Settings(), request, raw::Data(1, "the end", true));
  eager.Send(bytes);
  EXPECT_EQ(eager.ReceiveUntil(">"), absl::StrCat(raw::Settings(), "<", bytes, ">"));
  TestSocket waiting = ConnectTo(opened_->address());
  waiting.Send(absl::StrCat(raw::kPreface, raw::Settings()));
  EXPECT_EQ(waiting.ReceiveUntil(FirstRequest::kSettings), FirstRequest::kSettings);
  waiting.Send(absl::StrCat(request, raw::SettingsAck()));
  EXPECT_EQ(waiting.ReceiveUntil(raw::Settings()), raw::Settings()) << "of the worker";
  waiting.Send(absl::StrCat(raw::SettingsAck(), raw::Data(1, "the end", true)));
  EXPECT_EQ(waiting.ReceiveUntil(">"), absl::StrCat("<", raw::kPreface, raw::Settings(), request, raw::SettingsAck(),
                                                    raw::Data(1, "the end", true), ">"));
}

// As an idle gRPC channel.
TEST_F(OpenedTunnelTest, AClientOfHttp2WithoutARequestIsServedAfterTheOpeningTimeout) {
  TestHttp2Server worker(Says("!"));
  Start(worker.address(), ClientOrigin::Opening::kRedirected);
  TestSocket client = ConnectTo(opened_->address());
  client.Send(absl::StrCat(raw::kPreface, raw::Settings()));
  EXPECT_EQ(client.ReceiveUntil(FirstRequest::kSettings), FirstRequest::kSettings);
  executor_.Await([&] { names_.PutForward(std::chrono::minutes(1)); });
  EXPECT_THAT(client.ReceiveUntil(raw::SettingsAck()), HasSubstr(raw::SettingsAck()));
  EXPECT_EQ(Connections(), 1U);
}

TEST_F(OpenedTunnelTest, CallsOfARedirectedConnectionAreScheduled) {
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.Answer(call.head().authority); });
  Start(worker.address(), ClientOrigin::Opening::kRedirected);
  Http2Peer client(ConnectTo(opened_->address()));
  const auto& call = client.Open(Head("the.name.of.its.own"), FrameMessage("?"));
  EXPECT_TRUE(Await({&client}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.data, FrameMessage("the.name.of.its.own"));
}

TEST_F(OpenedTunnelTest, ARedirectedConnectionToWhereNobodyListensIsReset) {
  Start(AddressOfNobody().text, ClientOrigin::Opening::kRedirected);
  EXPECT_TRUE(ResetsClientOf(opened_->address()));
  EXPECT_THAT(log_.Await(1), ElementsAre(HasSubstr("Connection refused")));
}

TEST_F(OpenedTunnelTest, ARedirectedConnectionToAForbiddenDestinationIsRefusedInItsProtocol) {
  Start("169.254.169.254:80", ClientOrigin::Opening::kRedirected);
  const auto answer = [this](const std::string& bytes) {
    TestSocket client = ConnectTo(opened_->address());
    client.Send(bytes);
    return client.ReceiveAll();
  };
  EXPECT_THAT(answer("GET / HTTP/1.1\r\n\r\n"), ::testing::StartsWith("HTTP/1.1 403 "));
  EXPECT_EQ(answer("\x16\x03\x01"), std::string("\x15\x03\x03\x00\x02\x02\x31", 7)) << "access_denied";
  EXPECT_EQ(answer("\x01\x02"), "");
  EXPECT_THAT(answer(absl::StrCat(raw::kPreface, raw::Headers(1, {{":method", "GET"}, {":path", "/"}}))),
              HasSubstr("is never a worker"));
  Http2Peer client(ConnectTo(opened_->address()));
  EXPECT_EQ(StatusOf(client, "w"), "7");
  EXPECT_THAT(log_.events(), Contains(HasSubstr("is never a worker")));
}

TEST_F(OpenedTunnelTest, CallsOfADeniedRedirectedConnectionPassOnceNewOptionsPermitThem) {
  TestHttp2Server worker(Says("!"));
  Start(worker.address(), ClientOrigin::Opening::kRedirected);
  Permit({"10.0.0.0/8"});
  Http2Peer client(ConnectTo(opened_->address()));
  EXPECT_EQ(StatusOf(client, worker.address()), "7");
  Permit({"127.0.0.0/8"});
  EXPECT_EQ(StatusOf(client, worker.address()), "0");
}

TEST_F(OpenedTunnelTest, ADeniedRedirectedClientThatIsSilentIsNotWaitedForLong) {
  Start("169.254.169.254:80", ClientOrigin::Opening::kRedirected);
  TestSocket client = ConnectTo(opened_->address());
  log_.Await(1);
  executor_.Await([&] { names_.PutForward(std::chrono::minutes(1)); });
  EXPECT_EQ(client.ReceiveAll(), "");
}

// Each way to a tunnel. SOCKS5 and CONNECT differ in their first bytes alone.
class PooledTunnelTest : public OpenedTunnelTest, public ::testing::WithParamInterface<ClientOrigin::Opening> {
 protected:
  TestSocket Dial(const TestListener& worker) {
    const bool asks = GetParam() == ClientOrigin::Opening::kRequest;
    Start(asks ? "" : worker.address().text, GetParam());
    TestSocket client = ConnectTo(opened_->address());
    if (asks) {
      client.Send(absl::StrCat("CONNECT ", worker.address().text, " HTTP/1.1\r\n\r\n"));
      EXPECT_THAT(client.ReceiveUntil("\r\n\r\n"), ::testing::StartsWith("HTTP/1.1 200 "));
    }
    EXPECT_TRUE(Eventually([&] { return ConnectedTo().size() == 1; }));
    return client;
  }
  // Lets limits.opening_timeout of an open tunnel pass, in steps, since the same timeout is for its dial.
  void PassOpeningTimeout() {
    EXPECT_TRUE(Eventually([&] {
      executor_.Await([&] { names_.PutForward(std::chrono::seconds(1)); });
      return SumOf(registry_, "sluice_proxy_tunnels", "", "") == 1;
    }));
  }
};

INSTANTIATE_TEST_SUITE_P(Openings, PooledTunnelTest,
                         ::testing::Values(ClientOrigin::Opening::kRequest, ClientOrigin::Opening::kRoute,
                                           ClientOrigin::Opening::kRedirected));

TEST_P(PooledTunnelTest, AClientMayUseItsConnectionLater) {
  TestListener worker("127.0.0.1:0", Quote);
  TestSocket client = Dial(worker);
  PassOpeningTimeout();
  client.Send("?");
  EXPECT_EQ(client.ReceiveUntil(">"), "<?>");
}

TEST_P(PooledTunnelTest, AClientMayOnlyRead) {
  TestListener worker("127.0.0.1:0", [](int fd) {
    EXPECT_EQ(HowItEnds(fd), "end");
    SendAll(fd, "the time");
  });
  TestSocket client = Dial(worker);
  shutdown(client.fd(), SHUT_WR);
  EXPECT_EQ(client.ReceiveAll(), "the time");
}

// A person who types, or a protocol that begins like HTTP/2.
TEST_P(PooledTunnelTest, TheBeginningOfHttp2PassesLater) {
  TestListener worker("127.0.0.1:0", Quote);
  TestSocket client = Dial(worker);
  client.Send("PRI * HTTP");
  PassOpeningTimeout();
  EXPECT_EQ(client.ReceiveUntil(">"), "<PRI * HTTP>");
  client.Send("?");
  EXPECT_EQ(client.ReceiveUntil("<?>"), "<?>");
}

// Each connection to the listener seems to be redirected from the listener's own address, as with a rule that does not
// exempt the proxy.
TEST_F(OpenedTunnelTest, ALoopOfRedirectsEndsAtOnce) {
  Start("", ClientOrigin::Opening::kRedirected);
  for (int i = 1; i <= 10; ++i) {
    EXPECT_TRUE(ResetsClientOf(opened_->address()));
    EXPECT_TRUE(Eventually([&] { return Connections() == 0; }));
    EXPECT_THAT(ConnectedTo(), SizeIs(i)) << "one dial each";
  }
  EXPECT_THAT(log_.events(), Contains(HasSubstr("exempt the proxy's user from the rule")).Times(10));
}

}  // namespace
}  // namespace sluice::testing
