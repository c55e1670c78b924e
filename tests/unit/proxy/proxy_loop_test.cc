#include "lib/proxy/proxy_loop.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/proxy/proxy_loop_fixture.h"

namespace sluice {
namespace {

// The socket of a client that sends nothing.
class QuietSocket final : public StreamSocket {
 public:
  void Write(std::string) override {}
  size_t unsent_bytes() const override { return 0; }
  void SetReading(bool) override {}
  std::optional<TcpSocket> Tcp() const override { return std::nullopt; }
};

class ProxyConnectionsTest : public testing::ProxyLoopTest {
 protected:
  // Returns the clients in the order in which they connected.
  std::vector<StreamSocketEvents*> Accept(size_t connections) {
    std::vector<StreamSocketEvents*> clients;
    executor_.Await([&] {
      for (size_t i = 0; i < connections; ++i) {
        proxy_->Accept({.route = "", .local = true, .peer = "a client", .user = 1001}, [&](StreamSocketEvents& events) {
          clients.push_back(&events);
          return std::make_unique<QuietSocket>();
        });
      }
    });
    return clients;
  }
  size_t connections() {
    size_t connections = 0;
    executor_.Await([&] { connections = proxy_->connections(); });
    return connections;
  }
};

// A load balancer that stops closes all of its connections, in any order.
TEST_F(ProxyConnectionsTest, ConnectionsThatEndInOneTurnAllEnd) {
  constexpr size_t kConnections = 16'384;
  StartProxy();
  std::vector<StreamSocketEvents*> clients = Accept(kConnections);
  ASSERT_EQ(connections(), kConnections);
  executor_.Await([&] {
    for (; !clients.empty(); clients.pop_back()) clients.back()->OnDisconnected(absl::OkStatus());
  });
  EXPECT_EQ(connections(), 0u);
}

TEST_F(ProxyConnectionsTest, AConnectionThatEndsLeavesTheOthers) {
  StartProxy();
  const std::vector<StreamSocketEvents*> clients = Accept(3);
  executor_.Await([&] { clients[1]->OnDisconnected(absl::OkStatus()); });
  EXPECT_EQ(connections(), 2u);
  Accept(1);
  executor_.Await([&] {
    for (const size_t i : {2, 0}) clients[i]->OnDisconnected(absl::OkStatus());
  });
  EXPECT_EQ(connections(), 1u);
  bool drained = false;
  executor_.Await([&] {
    proxy_->Drain([&drained] { drained = true; });
    proxy_->Close(absl::UnavailableError("by the test"));
  });
  EXPECT_TRUE(drained);
}

// A client that resets each call some time after its start. The deadline is after 1 s.
class ResettingClientTest : public testing::ProxyLoopTest {
 protected:
  void SetUp() override {
    StartProxy();
    executor_.Await([&] { names_.StopClock(); });
    client_ = NewClient();
  }
  void ResetAfter(absl::Duration time) {
    const double ended = Ended("cancelled") + Ended("rpc_deadline");
    const auto& call = client_->Open(Head(worker_.address(), {{"grpc-timeout", "1S"}}), FrameMessage("?"));
    client_->Flush();
    ASSERT_TRUE(worker_.AwaitRequests(++requests_));
    executor_.Await([&] { names_.PutForward(absl::ToChronoNanoseconds(time)); });
    client_->session().Reset(call.id, Http2Error::kCancel);
    client_->Flush();
    ASSERT_TRUE(testing::Eventually([&] { return Ended("cancelled") + Ended("rpc_deadline") > ended; }));
  }
  double Ended(const std::string& outcome) const { return SumOf(registry_, "sluice_calls_total", "outcome", outcome); }

  testing::TestHttp2Server worker_{[](testing::TestHttp2Server::Call&) {}};
  std::unique_ptr<testing::Http2Peer> client_;
  int requests_ = 0;
};

// The time of the client begins before that of the proxy.
TEST_F(ResettingClientTest, AResetAtTheDeadlineMeansTheDeadline) {
  ResetAfter(absl::Milliseconds(995));
  EXPECT_EQ(Ended("rpc_deadline"), 1);
}

TEST_F(ResettingClientTest, AResetLongBeforeTheDeadlineCancelsTheCall) {
  ResetAfter(absl::Milliseconds(985));
  EXPECT_EQ(Ended("cancelled"), 1);
}

}  // namespace
}  // namespace sluice
