// Idle client connections, when there is no room for more.
#include <string>

#include "tests/unit/http2/raw_frames.h"
#include "tests/unit/proxy/proxy_fixture.h"

namespace sluice::testing {
namespace {

using IdleConnectionTest = ProxyTest;

TEST_F(IdleConnectionTest, TheConnectionThatIsIdleForTheLongestTimeMakesRoom) {
  options_.proxy.max_connections = 3;
  StartProxy();
  TestHttp2Server worker(Says("!"));
  const auto first = NewClient();
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 1));
  const auto second = NewClient();
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 2));
  const auto silent = NewClient();
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 3));
  const auto call = [&](Http2Peer& client) {
    const auto& opened = client.Open(Head(worker.address()), FrameMessage("?"));
    EXPECT_TRUE(Await({&client}, [&] { return opened.closed.has_value(); }));
    EXPECT_EQ(opened.status(), "0");
  };
  call(*first);
  const auto third = NewClient();
  call(*third);
  EXPECT_TRUE(Await({second.get()}, [&] { return second->over(); })) << "since the first one had a call later";
  EXPECT_TRUE(second->session().going_away()) << "it is told, and takes its calls elsewhere";
  const auto fourth = NewClient();
  call(*fourth);
  EXPECT_TRUE(Await({silent.get()}, [&] { return silent->over(); }));
  call(*first);
  call(*third);
  EXPECT_EQ(Metric("sluice_proxy_connections"), 3);
  EXPECT_EQ(Metric("sluice_proxy_idle_ends_total"), 2);
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "refused"), 0);
}

TEST_F(IdleConnectionTest, ABoundThatWasLoweredIsReached) {
  StartProxy();
  const auto first = NewClient();
  const auto second = NewClient();
  EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 2));
  ProxyServer::Options changed = options_;
  changed.proxy.max_connections = 1;
  ASSERT_TRUE(proxy_->Reconfigure(changed).ok());
  TestHttp2Server worker(Says("!"));
  ExpectServes(worker.address());
  EXPECT_TRUE(Await({first.get(), second.get()}, [&] { return first->over() && second->over(); }));
  EXPECT_EQ(Metric("sluice_proxy_idle_ends_total"), 2);
}

TEST_F(IdleConnectionTest, ConnectionsAboveTheirNumberAreClosedWhereAllHaveCalls) {
  options_.proxy.max_connections = 2;
  StartProxy();
  TestHttp2Server worker([](TestHttp2Server::Call&) {});
  const auto first = NewClient();
  const auto second = NewClient();
  const auto& call = first->Open(Head(worker.address()), FrameMessage("?"));
  const auto& other = second->Open(Head(worker.address()), FrameMessage("?"));
  first->Flush();
  second->Flush();
  ASSERT_TRUE(worker.AwaitRequests(2));
  const auto refused = NewClient();
  EXPECT_TRUE(Await({refused.get()}, [&] { return refused->over(); }));
  EXPECT_EQ(Metric("sluice_proxy_connections_total", "kind", "refused"), 1);
  EXPECT_EQ(Metric("sluice_proxy_idle_ends_total"), 0);
  worker.Run([&] {
    for (const auto& each : worker.calls()) each->Answer("!");
  });
  EXPECT_TRUE(Await({first.get(), second.get()}, [&] { return call.closed.has_value() && other.closed.has_value(); }));
  EXPECT_EQ(call.status(), "0");
  EXPECT_EQ(other.status(), "0");
  const auto third = NewClient();
  EXPECT_TRUE(AwaitMetric("sluice_proxy_idle_ends_total", 1)) << "now there is one that is idle";
}

// A connection that has begun a call and never completes its headers would never count as idle.
TEST_F(IdleConnectionTest, HeadersThatDoNotComeEndTheirConnection) {
  options_.proxy.opening_timeout = std::chrono::milliseconds(50);
  StartProxy();
  std::string cut = raw::Headers(1, Head("w:1"));
  cut.pop_back();
  const std::string continued = raw::Frame(raw::kHeaders, raw::kNone, 1, raw::HeaderBlock(Head("w:1")));
  for (const std::string& headers : {cut, continued}) {
    TestSocket socket = ConnectTo(address());
    socket.Send(absl::StrCat(raw::kPreface, raw::Settings(), headers));
    socket.ReceiveAll();
    EXPECT_TRUE(AwaitMetric("sluice_proxy_connections", 0));
  }
  EXPECT_TRUE(AwaitIdle());
}

}  // namespace
}  // namespace sluice::testing
