#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "lib/link/link_monitor.h"
#include "lib/link/scheduled_tunnel.h"
#include "tests/unit/link/virtual_link_fixture.h"

// Losses in scheduled tunnels, in virtual time: the tunnels are the only traffic of the link.
namespace sluice::testing {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""us;

constexpr int64_t kBuffer = 64 << 10;
constexpr int64_t kPacketBytes = 1448;

// A tunnel, and its connection as the kernel would report it.
class FakeTunnel {
 public:
  FakeTunnel(LinkLoop& loop, VirtualExecutor& executor, const std::string& ip)
      : executor_(executor),
        turns_(loop, loop.metrics().Tunnels("test"), 0,
               {.on_turn = [] {},
                .tcp = [this]() -> std::optional<TcpSocket> { return Tcp(); },
                .set_window = [](int) {},
                .on_refused = [](const absl::Status& why) { ADD_FAILURE() << why; }}) {
    socket_.inode = executor.NextInode();
    socket_.remote = TcpEndpoint(boost::asio::ip::make_address(ip), 1);
    socket_.info.packet_payload_bytes = kPacketBytes;
    sent_at_ = received_at_ = executor.Now();
  }

  // The worker may acknowledge the request before it responds.
  void Request(bool acknowledged = true) {
    executor_.Turn([&] {
      sent_at_ = executor_.Now();
      socket_.info.unacknowledged_packets = acknowledged ? 0 : 1;
      turns_.OnRequest("?");
    });
  }
  void Receive(int64_t bytes, uint32_t out_of_order_packets = 0) {
    executor_.Turn([&] {
      received_at_ = executor_.Now();
      socket_.info.unacknowledged_packets = 0;
      socket_.info.received_bytes += static_cast<uint64_t>(bytes);
      socket_.info.out_of_order_packets += out_of_order_packets;
      turns_.OnResponse(std::string(static_cast<size_t>(bytes), 'x'));
    });
  }
  size_t tcp_infos() const { return tcp_infos_; }
  void Stop() {
    executor_.Turn([&] { turns_.Stop(); });
  }
  void Exchange(uint32_t out_of_order_packets = 0) {
    Request();
    Receive(1000, out_of_order_packets);
  }

 private:
  TcpSocket Tcp() {
    ++tcp_infos_;
    executor_.CountTcpInfo();
    TcpSocket socket = socket_;
    socket.info.since_data_sent = absl::FromChrono(executor_.Now() - sent_at_);
    socket.info.since_data_received = absl::FromChrono(executor_.Now() - received_at_);
    return socket;
  }

  VirtualExecutor& executor_;
  TcpSocket socket_;
  size_t tcp_infos_ = 0;
  TimePoint sent_at_;
  TimePoint received_at_;
  ScheduledTunnel turns_;
};

class LinkMonitorTunnelsTest : public VirtualLinkTest {
 protected:
  void SetUp() override {
    ScheduleOptions options;
    options.profile.buffer_bytes = kBuffer;
    StartLink(options);
    const BudgetBounds bounds{.floor_bytes = 12 << 10,
                              .start_bytes = kBuffer,
                              .reference_bytes = kBuffer,
                              .limit_bytes = kBuffer,
                              .capacity_bytes_per_second = 125e6};
    executor_.Turn([&] { monitor_ = std::make_unique<LinkMonitor>(*loop_, bounds, true, nullptr, nullptr); });
  }
  void TearDown() override {
    executor_.Turn([&] { tunnels_.clear(); });
    monitor_.reset();
    VirtualLinkTest::TearDown();
  }

  FakeTunnel& Open(const std::string& ip) {
    return *tunnels_.emplace_back(std::make_unique<FakeTunnel>(*loop_, executor_, ip));
  }
  // Opens tunnels, each to a worker of its own, and waits until every worker has responded.
  void Open(size_t tunnels) {
    for (size_t i = 0; i < tunnels; ++i) {
      Open(absl::StrCat("10.0.", i / 250, ".", 1 + i % 250)).Exchange();
      executor_.RunFor(5ms);
    }
    executor_.RunFor(1s);
  }
  // Loses the whole responses of these tunnels; the others have responses meanwhile.
  void LoseResponses(const std::vector<size_t>& tunnels) {
    for (const size_t tunnel : tunnels) tunnels_[tunnel]->Request(/*acknowledged=*/false);
    executor_.RunFor(250ms);
    for (const auto& tunnel : tunnels_) {
      if (tunnel != nullptr) tunnel->Receive(1000);
    }
    executor_.RunFor(1s);
  }

  int64_t budget() const { return loop_->schedule().State().budget_bytes; }
  double Counter(const std::string& name, const std::string& label) const {
    for (const auto& family : registry_.Collect()) {
      if (family.name != name) continue;
      for (const auto& metric : family.metric) {
        if (metric.label.empty() ? label.empty() : metric.label[0].value == label) return metric.counter.value;
      }
    }
    return -1;
  }
  double timeouts() const { return Counter("sluice_timeouts_total", "tcp_rto"); }
  double losses(const std::string& evidence) const { return Counter("sluice_inferred_losses_total", evidence); }
  // Returns how often sockets were looked at since then.
  size_t Looks(TimePoint since) const {
    size_t looks = 0;
    for (auto next = executor_.tcp_infos().lower_bound(since); next != executor_.tcp_infos().end(); ++next)
      looks += next->second;
    return looks;
  }

  std::vector<std::unique_ptr<FakeTunnel>> tunnels_;
  std::unique_ptr<LinkMonitor> monitor_;
};

TEST_F(LinkMonitorTunnelsTest, PacketsOutOfOrderAreLosses) {
  Open(8);
  for (const auto& tunnel : tunnels_) tunnel->Exchange(/*out_of_order_packets=*/2);
  executor_.RunFor(1s);
  EXPECT_EQ(losses("out_of_order"), 8);
  EXPECT_EQ(Counter("sluice_link_out_of_order_packets_total", ""), 16);
  EXPECT_EQ(timeouts(), 0);
}

TEST_F(LinkMonitorTunnelsTest, PacketsOutOfOrderCountOnceForEachTurn) {
  Open(8);
  FakeTunnel& tunnel = *tunnels_[0];
  for (int turn = 1; turn <= 3; ++turn) {
    tunnel.Request();
    for (int look = 0; look < 3; ++look) {
      tunnel.Receive(kPacketBytes, 1);
      executor_.RunFor(1ms);
    }
    executor_.RunFor(1s);
    EXPECT_EQ(losses("out_of_order"), turn);
  }
}

TEST_F(LinkMonitorTunnelsTest, LossesCountOfATunnelThatEndsBeforeTheLook) {
  Open(8);
  for (const auto& tunnel : tunnels_) {
    tunnel->Exchange(/*out_of_order_packets=*/1);
    tunnel->Stop();
  }
  executor_.RunFor(1s);
  EXPECT_EQ(losses("out_of_order"), 8);
}

TEST_F(LinkMonitorTunnelsTest, ManyPacketsOutOfOrderHalveTheBudget) {
  Open(16);
  for (const auto& tunnel : tunnels_) tunnel->Exchange(/*out_of_order_packets=*/2);
  executor_.RunFor(1s);
  EXPECT_EQ(budget(), kBuffer / 2);
}

TEST_F(LinkMonitorTunnelsTest, LostResponsesOfTwoWorkersHalveTheBudget) {
  Open(8);
  LoseResponses({0, 1});
  EXPECT_EQ(timeouts(), 2);
  EXPECT_EQ(losses("silence"), 2);
  EXPECT_EQ(losses("pause"), 0);
  EXPECT_EQ(budget(), kBuffer / 2);
}

// A turn ends long before the timeout.
TEST_F(LinkMonitorTunnelsTest, LostResponsesOfFastWorkersAreSeenAtAnyMoment) {
  Open(2);
  for (int lost = 1; lost <= 10; ++lost) {
    for (int i = 0; i < 100; ++i) {
      for (const auto& tunnel : tunnels_) tunnel->Request();
      executor_.RunFor(1ms);
      for (const auto& tunnel : tunnels_) tunnel->Receive(1000);
      executor_.RunFor(5ms);
    }
    executor_.RunFor(10ms);
    LoseResponses({0, 1});
    EXPECT_EQ(losses("silence"), 2 * lost);
  }
}

TEST_F(LinkMonitorTunnelsTest, LostResponsesOfTwoTunnelsToOneWorkerAreOfOneWorker) {
  Open(8);
  Open("10.0.0.1").Exchange();
  LoseResponses({0, 8});
  EXPECT_EQ(timeouts(), 2);
  EXPECT_EQ(losses("silence"), 2);
  EXPECT_EQ(budget(), kBuffer);
}

TEST_F(LinkMonitorTunnelsTest, AWorkerWithCallsAndATunnelIsOneWorker) {
  Open(8);
  VirtualWorker& worker = Serve("10.0.0.1:1", [](auto& call) { call.Answer(std::string(100'000, 'x')); });
  tunnels_[0]->Request(/*acknowledged=*/false);
  Ask(worker.address());
  ASSERT_TRUE(executor_.RunUntil([&] { return loop_->schedule().Load(1).owing_calls > 0; }, 1s));
  worker.SetPause(VirtualWorker::Pause::kHost);
  executor_.RunFor(250ms);
  executor_.Turn([&] { worker.SetPause(VirtualWorker::Pause::kNone); });
  for (const auto& tunnel : tunnels_) tunnel->Receive(1000);
  executor_.RunFor(1s);
  EXPECT_EQ(losses("silence"), 2);
  EXPECT_EQ(budget(), kBuffer);
}

// The last packets were lost, or the process of the worker stood still.
TEST_F(LinkMonitorTunnelsTest, SilenceWithinAResponseIsAPauseForItsWorkerOnly) {
  Open(8);
  for (const size_t tunnel : {0, 1}) {
    tunnels_[tunnel]->Request();
    tunnels_[tunnel]->Receive(2 * kPacketBytes);
  }
  executor_.RunFor(200ms);
  for (const auto& tunnel : tunnels_) tunnel->Receive(1000);
  executor_.RunFor(1s);
  EXPECT_EQ(timeouts(), 2);
  EXPECT_EQ(losses("pause"), 2);
  EXPECT_EQ(losses("silence"), 0);
  EXPECT_EQ(budget(), kBuffer);
}

TEST_F(LinkMonitorTunnelsTest, NothingIsLostIfAWorkerThinks) {
  Open(8);
  for (const std::chrono::milliseconds time : {10ms, 100ms, 250ms, 2000ms}) {
    for (const auto& tunnel : tunnels_) tunnel->Request();
    executor_.RunFor(time);
    for (const auto& tunnel : tunnels_) tunnel->Receive(1000);
    executor_.RunFor(1s);
  }
  EXPECT_EQ(timeouts(), 0);
}

TEST_F(LinkMonitorTunnelsTest, NothingIsLostIfAResponseHasEnded) {
  Open(8);
  for (int push = 0; push < 3; ++push) {
    for (const auto& tunnel : tunnels_) tunnel->Receive(2 * kPacketBytes + 100);
    executor_.RunFor(250ms);
  }
  EXPECT_EQ(timeouts(), 0);
}

// The bytes of a tunnel that waits are not read.
TEST_F(LinkMonitorTunnelsTest, NothingIsLostIfATunnelWaitsForItsTurn) {
  Open(2);
  FakeTunnel& tunnel = *tunnels_[0];
  tunnel.Request();
  tunnel.Receive(kPacketBytes);
  SetLease(0);
  tunnel.Receive(40 * kPacketBytes);
  executor_.RunFor(400ms);
  SetLease(kAmpleBytes);
  tunnel.Receive(1000);
  executor_.RunFor(1s);
  EXPECT_EQ(timeouts(), 0);
}

TEST_F(LinkMonitorTunnelsTest, IdleTunnelsAreNotLookedAt) {
  Open(1000);
  const TimePoint start = executor_.Now();
  const size_t before = tunnels_[0]->tcp_infos();
  for (int i = 0; i < 100; ++i) {
    tunnels_[0]->Exchange();
    executor_.RunFor(100ms);
  }
  EXPECT_EQ(Looks(start), tunnels_[0]->tcp_infos() - before) << "none of the other tunnels";
}

TEST_F(LinkMonitorTunnelsTest, AHundredTunnelsAreLookedAtAtATime) {
  Open(250);
  executor_.RunFor(50ms);
  for (const auto& tunnel : tunnels_) tunnel->Exchange();
  executor_.RunFor(5ms);
  const TimePoint start = executor_.Now();
  executor_.RunFor(500ms);
  EXPECT_GE(Looks(start), 250U);
  for (auto next = executor_.tcp_infos().lower_bound(start); next != executor_.tcp_infos().end(); ++next) {
    EXPECT_LE(next->second, 100U);
  }
}

TEST_F(LinkMonitorTunnelsTest, TunnelsMayEndDuringALook) {
  Open(250);
  for (const auto& tunnel : tunnels_) tunnel->Exchange();
  executor_.RunFor(100ms + 500us);
  executor_.Turn([&] { tunnels_.resize(120); });
  executor_.RunFor(1s);
  for (const auto& tunnel : tunnels_) tunnel->Exchange(/*out_of_order_packets=*/1);
  executor_.RunFor(1s);
  EXPECT_EQ(losses("out_of_order"), 120);
}

}  // namespace
}  // namespace sluice::testing
