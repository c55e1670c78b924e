// The price that the other clients of a worker pay for the calls of one client.
#include <atomic>
#include <memory>

#include "tests/unit/proxy/proxy_fixture.h"
#include "tests/unit/tls/test_certificates.h"

namespace sluice::testing {
namespace {

class SharedWorkerTest : public ProxyTest {
 protected:
  static constexpr char kHang[] = "/test.Answers/Hang";

  // Hangs in calls of this path.
  TestHttp2Server::Handler Handler() {
    return [this](TestHttp2Server::Call& call) {
      call.on_closed = [this](StreamEnd) { ++ended_; };
      if (call.path() != kHang) call.Answer("!");
    };
  }
  static Http2Peer::Stream& Hold(Http2Peer& client, const std::string& worker) {
    HeaderList head = Head(worker);
    for (HeaderField& field : head) {
      if (field.name == ":path") field.value = kHang;
    }
    return client.Open(head, FrameMessage("?"));
  }

  double Gauge(const std::string& name) const {
    for (const auto& family : link_->gauges().Collect()) {
      if (family.name == name) return family.metric[0].gauge.value;
    }
    return -1;
  }

  std::atomic<int> ended_{0};  // calls of the worker
};

TEST_F(SharedWorkerTest, AClientWithAllStreamsOfAConnectionStopsNoOther) {
  StartProxy();
  TestHttp2Server worker(Handler(), {.max_concurrent_streams = 2});
  const auto one = NewClient();
  const auto other = NewClient();
  for (int i = 0; i < 2; ++i) Hold(*one, worker.address());
  one->Flush();
  ASSERT_TRUE(worker.AwaitRequests(2));
  EXPECT_EQ(StatusOf(*other, worker.address()), "0");
  EXPECT_EQ(worker.counts().connections, 2);
  EXPECT_EQ(Gauge("sluice_workers_connected"), 1);
  EXPECT_EQ(Gauge("sluice_stream_waiting_calls"), 0);
}

TEST_F(SharedWorkerTest, SoItIsWithTls) {
  TestCertificates certificates;
  TestHttp2Server worker(
      Handler(), {.max_concurrent_streams = 2, .tls = TlsServerEnd::Options{.files = certificates.Make("worker")}});
  options_.tls = certificates.ClientOptions();
  StartProxy();
  const auto one = NewClient();
  const auto other = NewClient();
  for (int i = 0; i < 5; ++i) Hold(*one, worker.address());
  one->Flush();
  ASSERT_TRUE(worker.AwaitRequests(5));
  EXPECT_EQ(StatusOf(*other, worker.address()), "0");
  EXPECT_EQ(worker.counts().connections, 3);
}

TEST_F(SharedWorkerTest, CallsBeyondTheConnectionsWaitAndAreCounted) {
  StartProxy();
  TestHttp2Server worker(Handler(), {.max_concurrent_streams = 2});
  const auto one = NewClient();
  for (int i = 0; i < 11; ++i) Hold(*one, worker.address());
  one->Flush();
  ASSERT_TRUE(worker.AwaitRequests(8));
  EXPECT_TRUE(Eventually([this] { return Gauge("sluice_stream_waiting_calls") == 3; }));
  EXPECT_EQ(worker.counts().connections, 4);
}

TEST_F(SharedWorkerTest, TheCallsOfAClientThatIsGoneEndAtTheWorker) {
  StartProxy();
  constexpr int kCalls = 600;
  TestHttp2Server worker(Handler());
  const auto other = NewClient();
  const Http2Peer::Stream& watch = Hold(*other, worker.address());
  other->Flush();
  ASSERT_TRUE(worker.AwaitRequests(1));
  auto one = NewClient();
  ASSERT_TRUE(Await({one.get()}, [&] { return one->session().open_slots() > kCalls; }));
  for (int i = 0; i < kCalls; ++i) Hold(*one, worker.address());
  while (worker.counts().requests < kCalls + 1) one->Pump();
  one.reset();
  EXPECT_TRUE(Eventually([&] { return ended_ == kCalls; })) << ended_;
  EXPECT_EQ(StatusOf(*other, worker.address()), "0");
  EXPECT_FALSE(watch.closed.has_value());
}

}  // namespace
}  // namespace sluice::testing
