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
        proxy_->Accept({.route = "", .local = true, .peer = "a client"}, [&](StreamSocketEvents& events) {
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

}  // namespace
}  // namespace sluice
