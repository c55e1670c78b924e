#include "lib/tcp/stall_watch.h"

#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace sluice {
namespace {

using boost::asio::ip::make_address;

constexpr absl::Duration kRound = absl::Milliseconds(20);

TcpSocket SocketTo(uint64_t inode, const char* host, uint16_t port = 7000) {
  return {.inode = inode,
          .local = {make_address("10.0.0.1"), static_cast<uint16_t>(40000 + inode)},
          .remote = {make_address(host), port}};
}

// Steps a watch in rounds of 20 ms. Each socket is silent unless a test changes it.
class StallWatchTest : public ::testing::Test {
 protected:
  // Adds a round, and ages all sockets until the next one.
  void Round() {
    now_ += kRound;
    watch_->Add(now_, sockets_);
    watch_->EndRound(now_);
    for (TcpSocket& socket : sockets_) {
      socket.info.since_data_sent += kRound;
      socket.info.since_data_received += kRound;
    }
  }
  void Rounds(int count) {
    for (int i = 0; i < count; ++i) Round();
  }

  static void Receive(TcpSocket& socket, uint64_t bytes) {
    socket.info.received_bytes += bytes;
    socket.info.since_data_received = absl::ZeroDuration();
    socket.info.unacknowledged_packets = 0;
  }
  static void Send(TcpSocket& socket, uint32_t packets) {
    socket.info.unacknowledged_packets += packets;
    socket.info.since_data_sent = absl::ZeroDuration();
  }
  static void Acknowledge(TcpSocket& socket, uint64_t bytes) {
    socket.info.acknowledged_bytes += bytes;
    socket.info.unacknowledged_packets = 0;
  }

  std::vector<TcpFlow> Finish() { return watch_->Finish(now_); }

  std::optional<StallWatch> watch_{std::in_place};
  std::vector<TcpSocket> sockets_;
  absl::Duration now_;
};

TEST_F(StallWatchTest, AHostWithoutConnectionsHasNoFlows) {
  Rounds(3);
  EXPECT_TRUE(Finish().empty());
}

TEST_F(StallWatchTest, CountsTheBytesOfTheWatch) {
  sockets_ = {SocketTo(1, "10.0.0.2"), SocketTo(2, "10.0.0.3"), SocketTo(3, "10.0.0.3")};
  for (TcpSocket& socket : sockets_) socket.info.received_bytes = 1'000'000;
  Round();
  for (TcpSocket& socket : sockets_) Receive(socket, 500);
  Round();
  Receive(sockets_[0], 100);
  Rounds(2);
  const auto flows = Finish();
  ASSERT_EQ(flows.size(), 1u);
  EXPECT_EQ(flows[0].to, std::nullopt);
  EXPECT_EQ(flows[0].connections, 3u);
  EXPECT_EQ(flows[0].hosts, 2u);
  EXPECT_EQ(flows[0].bytes, 1600u);
  EXPECT_EQ(flows[0].bursts, 3u);
  EXPECT_EQ(flows[0].most_at_once, 3u);
  EXPECT_EQ(flows[0].busy_rounds, 2u);
  EXPECT_EQ(flows[0].broad_rounds, 1u);
  EXPECT_TRUE(flows[0].stalls.empty());
}

TEST_F(StallWatchTest, FindsTheBestTenthOfASecond) {
  sockets_ = {SocketTo(1, "10.0.0.2")};
  Rounds(5);
  for (int i = 0; i < 5; ++i) {
    Receive(sockets_[0], 2000);
    Round();
  }
  Rounds(20);
  EXPECT_DOUBLE_EQ(Finish().at(0).peak_bytes_per_second, 100'000);
}

TEST_F(StallWatchTest, SendersHaveAFlowForEachHost) {
  sockets_ = {SocketTo(1, "10.0.0.3"), SocketTo(2, "10.0.0.2"), SocketTo(3, "10.0.0.3")};
  Round();
  for (TcpSocket& socket : sockets_) Acknowledge(socket, 1000);
  Receive(sockets_[0], 10);  // a request
  Round();
  const auto flows = Finish();
  ASSERT_EQ(flows.size(), 2u);
  EXPECT_EQ(flows[0].to, make_address("10.0.0.2"));
  EXPECT_EQ(flows[0].connections, 1u);
  EXPECT_EQ(flows[1].to, make_address("10.0.0.3"));
  EXPECT_EQ(flows[1].connections, 2u);
  EXPECT_EQ(flows[1].hosts, 1u);
  EXPECT_EQ(flows[1].bytes, 2000u);
}

TEST_F(StallWatchTest, AnAggregatorStallsWhenARequestIsNotAcknowledged) {
  sockets_ = {SocketTo(1, "10.0.0.2")};
  Rounds(5);
  const absl::Duration sent = now_ + kRound;
  Send(sockets_[0], 1);
  Rounds(11);
  Receive(sockets_[0], 10'000);
  Round();
  const auto flows = Finish();
  ASSERT_EQ(flows.size(), 1u);
  ASSERT_EQ(flows[0].stalls.size(), 1u);
  const TcpStall& stall = flows[0].stalls[0];
  EXPECT_EQ(stall.begin, sent);
  EXPECT_EQ(stall.seen, sent + absl::Milliseconds(160));
  EXPECT_EQ(stall.end, sent + absl::Milliseconds(220));
  EXPECT_EQ(stall.host, make_address("10.0.0.2"));
  EXPECT_EQ(stall.flow_bytes, 10'000u);
}

TEST_F(StallWatchTest, AnAggregatorStallsAtAMissingPacket) {
  sockets_ = {SocketTo(1, "10.0.0.2")};
  Round();
  Receive(sockets_[0], 1448);
  sockets_[0].misses_packet = true;
  Rounds(11);
  sockets_[0].misses_packet = false;
  Receive(sockets_[0], 8000);
  Round();
  EXPECT_EQ(Finish().at(0).stalls.size(), 1u);
}

TEST_F(StallWatchTest, AMissingPacketThatComesSoonIsNoStall) {
  sockets_ = {SocketTo(1, "10.0.0.2")};
  Round();
  for (int i = 0; i < 20; ++i) {
    Receive(sockets_[0], 1448);
    sockets_[0].misses_packet = true;
    Rounds(5);
    sockets_[0].misses_packet = false;
  }
  EXPECT_TRUE(Finish().at(0).stalls.empty());
}

TEST_F(StallWatchTest, ASlowWorkerAndAnIdleConnectionAreNoStalls) {
  sockets_ = {SocketTo(1, "10.0.0.2")};
  Round();
  for (int i = 0; i < 3; ++i) {
    Send(sockets_[0], 1);
    Rounds(2);
    Acknowledge(sockets_[0], 100);  // by a delayed acknowledgement, and the worker computes
    Rounds(20);
    Receive(sockets_[0], 10'000);
    Rounds(30);
  }
  EXPECT_TRUE(Finish().at(0).stalls.empty());
}

TEST_F(StallWatchTest, MeasuresTheWaitsForResponses) {
  sockets_ = {SocketTo(1, "10.0.0.2"), SocketTo(2, "10.0.0.3")};
  Rounds(30);
  for (int i = 0; i < 5; ++i) {
    for (TcpSocket& socket : sockets_) Send(socket, 1);
    Rounds(2);
    for (TcpSocket& socket : sockets_) Acknowledge(socket, 20);
    Round();
    Receive(sockets_[0], 1200);
    Receive(sockets_[1], 17);  // of a PING
    Rounds(i == 4 ? 10 : 1);
    if (i == 4) Receive(sockets_[1], 1200);
    Round();
  }
  const auto flows = Finish();
  ASSERT_EQ(flows.size(), 1u);
  EXPECT_TRUE(flows[0].stalls.empty());
  EXPECT_EQ(flows[0].median_wait, absl::Milliseconds(60));
  ASSERT_EQ(flows[0].long_waits.size(), 1u);
  EXPECT_EQ(flows[0].long_waits[0].end - flows[0].long_waits[0].begin, absl::Milliseconds(260));
  EXPECT_EQ(flows[0].long_waits[0].host, make_address("10.0.0.3"));
}

TEST_F(StallWatchTest, AnIdleConnectionDoesNotWait) {
  sockets_ = {SocketTo(1, "10.0.0.2")};
  Rounds(30);
  for (int i = 0; i < 5; ++i) {
    Send(sockets_[0], 1);
    Round();
    Receive(sockets_[0], 1200);
    Rounds(20);
  }
  const auto flows = Finish();
  ASSERT_EQ(flows.size(), 1u);
  EXPECT_TRUE(flows[0].long_waits.empty());
  EXPECT_EQ(flows[0].median_wait, absl::Milliseconds(20));
}

TEST_F(StallWatchTest, AWorkerStallsUntilItRetransmits) {
  sockets_ = {SocketTo(1, "10.0.0.2")};
  Round();
  Acknowledge(sockets_[0], 10'000);
  Round();
  Send(sockets_[0], 7);
  Rounds(10);
  ++sockets_[0].info.retransmitted_packets;
  sockets_[0].info.since_data_sent = absl::ZeroDuration();
  Round();
  Acknowledge(sockets_[0], 10'000);
  Rounds(10);
  const auto flows = Finish();
  ASSERT_EQ(flows.size(), 1u);
  EXPECT_EQ(flows[0].to, make_address("10.0.0.2"));
  ASSERT_EQ(flows[0].stalls.size(), 1u);
  EXPECT_EQ(flows[0].stalls[0].end - flows[0].stalls[0].begin, absl::Milliseconds(200));
}

TEST_F(StallWatchTest, PacketsOfAWorkerThatWaitInALongQueueAreNoStall) {
  sockets_ = {SocketTo(1, "10.0.0.2")};
  Round();
  for (int i = 0; i < 5; ++i) {
    Send(sockets_[0], 7);
    Rounds(12);
    Acknowledge(sockets_[0], 10'000);
    Round();
  }
  EXPECT_TRUE(Finish().at(0).stalls.empty());
}

TEST_F(StallWatchTest, AShortRetransmissionTimeoutIsAStallWithoutLength) {
  sockets_ = {SocketTo(1, "10.0.0.2")};
  sockets_[0].info.rtos = 65535;  // wraps
  Round();
  Acknowledge(sockets_[0], 10'000);
  sockets_[0].info.rtos = 0;
  Round();
  const auto flows = Finish();
  ASSERT_EQ(flows.at(0).stalls.size(), 1u);
  EXPECT_EQ(flows[0].stalls[0].end, flows[0].stalls[0].begin);
}

TEST_F(StallWatchTest, AConnectionThatClosesKeepsItsFigures) {
  sockets_ = {SocketTo(1, "10.0.0.2"), SocketTo(2, "10.0.0.3")};
  Round();
  Receive(sockets_[1], 1000);
  Send(sockets_[1], 1);
  Rounds(12);
  sockets_.pop_back();
  Rounds(2);
  Receive(sockets_[0], 10);
  Round();
  const auto flows = Finish();
  ASSERT_EQ(flows.size(), 1u);
  EXPECT_EQ(flows[0].connections, 2u);
  EXPECT_EQ(flows[0].bytes, 1010u);
  EXPECT_EQ(flows[0].stalls.size(), 1u);
}

TEST_F(StallWatchTest, PassesOverConnectionsWithinTheHost) {
  sockets_ = {SocketTo(1, "127.0.0.1"), SocketTo(2, "10.0.0.1"), SocketTo(3, "::1")};
  Round();
  for (TcpSocket& socket : sockets_) Receive(socket, 1000);
  Round();
  EXPECT_TRUE(Finish().empty());
}

TEST_F(StallWatchTest, WatchesOnePortAtEitherEnd) {
  watch_.emplace(7000);
  sockets_ = {SocketTo(1, "10.0.0.2"), SocketTo(2, "10.0.0.2", 22), SocketTo(3, "10.0.0.2", 50000)};
  sockets_[2].local.port(7000);
  Round();
  for (TcpSocket& socket : sockets_) Receive(socket, 1000);
  Round();
  EXPECT_EQ(Finish().at(0).connections, 2u);
}

}  // namespace
}  // namespace sluice
