// The targets of calls through a proxy, and the authority and headers that the workers receive.
#include <string>
#include <thread>

#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/net/test_listener.h"
#include "tests/unit/proxy/peer_worker.h"
#include "tests/unit/proxy/proxy_fixture.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Kind = StreamEnd::Kind;

class CallRoutingTest : public ProxyTest {
 protected:
  static std::unique_ptr<Http2Peer> ClientOf(const std::string& address) {
    auto client = std::make_unique<Http2Peer>(ConnectTo(address));
    client->Flush();
    return client;
  }
  // Returns the :authority of the one request that the worker receives from this client.
  static std::string AuthorityAt(PeerWorker& worker, Http2Peer& client) {
    EXPECT_TRUE(Await({&client}, [&] {
      worker.Pump();
      return !worker.connections().empty() && !worker.connections().back()->streams().empty();
    }));
    if (worker.connections().empty() || worker.connections().back()->streams().empty()) return "none came";
    return worker.connections().back()->streams().front()->Field(":authority");
  }
};

TEST_F(CallRoutingTest, ARouteStandsForItsWorkers) {
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.Answer(call.head().authority); });
  options_.listeners = {{.address = "127.0.0.1:0", .route = ""}, {.address = "127.0.0.1:0", .route = worker.address()}};
  StartProxy();
  const auto client = ClientOf(address(1));
  const auto& call = client->Open(Head("any.name.at.all"), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.data, FrameMessage(worker.address()));
}

// Older clients of etcd send such authorities, and gRPC's servers take them.
TEST_F(CallRoutingTest, AnAuthorityThatIsNoHostAndPortIsTakenAtARouteAndNamesNoWorker) {
  TestHttp2Server worker([](TestHttp2Server::Call& call) { call.Answer(call.head().authority); });
  options_.listeners = {{.address = "127.0.0.1:0", .route = ""}, {.address = "127.0.0.1:0", .route = worker.address()}};
  StartProxy();
  const auto routed = ClientOf(address(1)), free = ClientOf(address(0));
  for (const std::string& authority :
       {"http://" + worker.address(), std::string("/path"), std::string("unix:/path"), std::string("unix:path"),
        std::string("#initially=[h:1;h:2]"), std::string(), std::string("a\"b:1")}) {
    const auto& call = routed->Open(Head(authority), FrameMessage("?"));
    const auto& refused = free->Open(Head(authority), FrameMessage("?"));
    EXPECT_TRUE(
        Await({routed.get(), free.get()}, [&] { return call.closed.has_value() && refused.closed.has_value(); }));
    EXPECT_EQ(call.data, FrameMessage(worker.address())) << authority;
    EXPECT_TRUE(refused.is(Kind::kComplete)) << authority;
    EXPECT_THAT(refused.status(), ::testing::AnyOf("3", "7")) << authority;
    EXPECT_THAT(refused.Field("grpc-message"), Not(::testing::IsEmpty()));
  }
  for (const char* bad : {"a b:1", "a\r\nb:1", "a\x7f:1"}) {
    const auto& call = routed->Open(Head(bad), FrameMessage("?"));
    EXPECT_TRUE(Await({routed.get()}, [&] { return call.closed.has_value(); }));
    EXPECT_TRUE(call.is(Kind::kReset, Http2Error::kProtocolError)) << bad;
  }
}

TEST_F(CallRoutingTest, AFieldMayNameTheWorker) {
  options_.proxy.worker_header = "x-worker";
  StartProxy();
  TestHttp2Server worker([](TestHttp2Server::Call& call) {
    EXPECT_THAT(call.head().metadata, ::testing::ElementsAre(::testing::Key("via"), ::testing::Key("x-worker")));
    call.Answer(call.head().authority);
  });
  const auto client = NewClient();
  const auto& call = client->Open(Head("proxy.svc:1", {{"x-worker", worker.address()}}), FrameMessage("?"));
  const auto& other = client->Open(Head(worker.address(), {{"x-worker", "8.8.8.8:1"}}), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().streams() == 0; }));
  EXPECT_EQ(call.data, FrameMessage(worker.address()));
  EXPECT_EQ(other.status(), "7");
}

// A socket path is not a valid authority: nghttp2, and Node's server among others, would reset the stream.
TEST_F(CallRoutingTest, AWorkerOnAUnixSocketIsLocalhost) {
  const std::string path = absl::StrCat("unix:", ::testing::TempDir(), "sluice-routing-", getpid());
  PeerWorker worker(65535, path);
  options_.listeners = {{.address = "127.0.0.1:0", .route = ""}, {.address = "127.0.0.1:0", .route = path}};
  options_.workers = {"unix:*", "unix-abstract:*"};
  options_.proxy.worker_header = "x-worker";
  StartProxy();
  {
    const auto client = NewClient();
    client->Open(Head("proxy.svc:1", {{"x-worker", path}}), FrameMessage("?"));
    EXPECT_EQ(AuthorityAt(worker, *client), "localhost") << "by a header";
  }
  PeerWorker abstract(65535, absl::StrCat("unix-abstract:sluice-routing-", getpid()));
  const auto client = NewClient();
  const auto& call = client->Open(Head(path), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.status(), "3") << "HTTP/2 allows no path as authority";
  client->Open(Head(abstract.address()), FrameMessage("?"));
  EXPECT_EQ(AuthorityAt(abstract, *client), "localhost") << "a name without a path";
  unlink(path.substr(path.find('/')).c_str());
}

TEST_F(CallRoutingTest, ARouteMayLeadToAUnixSocket) {
  PeerWorker worker(65535, absl::StrCat("unix-abstract:sluice-route-", getpid()));
  options_.listeners = {{.address = "127.0.0.1:0", .route = worker.address()}};
  options_.workers = {"unix-abstract:*"};
  StartProxy();
  const auto client = NewClient();
  client->Open(Head("any.name.at.all"), FrameMessage("?"));
  EXPECT_EQ(AuthorityAt(worker, *client), "localhost");
}

// The listener acts as NAT: the proxy does not have its address.
TEST_F(CallRoutingTest, ACallThatComesBackThroughAnotherAddressEnds) {
  StartProxy();
  const auto pass = [](int from, int to) {
    for (std::string bytes = ReceiveAtLeast(from, 1); !bytes.empty(); bytes = ReceiveAtLeast(from, 1)) {
      SendAll(to, bytes);
    }
    shutdown(to, SHUT_RDWR);
  };
  TestListener nat("127.0.0.1:0", [&](int fd) {
    TestSocket proxy = ConnectTo(address());
    std::thread back(pass, proxy.fd(), fd);
    pass(fd, proxy.fd());
    back.join();
  });
  const auto client = NewClient();
  const auto& call = client->Open(Head(nat.address().text), FrameMessage("?"));
  EXPECT_TRUE(Await({client.get()}, [&] { return call.closed.has_value(); }));
  EXPECT_EQ(call.status(), "9");
  EXPECT_THAT(call.Field("grpc-message"), HasSubstr("the call has come back to this proxy"));
  EXPECT_TRUE(AwaitMetric("sluice_proxy_calls_total", 2)) << "the one of the client, and the one that came back";
}

}  // namespace
}  // namespace sluice::testing
