#include "lib/tcp/tcp_info.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include <gtest/gtest.h>
#include <linux/tcp.h>

namespace sluice {
namespace {

// In Linux 6.2 and 6.7; the headers of Debian 12 end before them.
constexpr size_t kReceiveWindowOffset = 232;
constexpr size_t kTotalRtoOffset = 240;

// Returns the struct of a current kernel, with a different value for each member.
std::string FullInfo() {
  tcp_info info{};
  info.tcpi_total_retrans = 7;
  info.tcpi_bytes_acked = 5'000'000'000;
  info.tcpi_unacked = 3;
  info.tcpi_snd_cwnd = 12;
  info.tcpi_rtt = 1500;
  info.tcpi_min_rtt = 900;
  info.tcpi_last_data_sent = 40;
  info.tcpi_rcv_ooopack = 5;
  info.tcpi_bytes_received = 6'000'000'000;
  info.tcpi_last_data_recv = 210;
  std::string bytes(248, '\0');
  std::memcpy(bytes.data(), &info, std::min(sizeof(info), kReceiveWindowOffset));
  const uint32_t receive_window = 2920;
  std::memcpy(bytes.data() + kReceiveWindowOffset, &receive_window, sizeof(receive_window));
  const uint16_t rtos = 513;
  std::memcpy(bytes.data() + kTotalRtoOffset, &rtos, sizeof(rtos));
  return bytes;
}

TcpInfo ParseFirst(size_t bytes) {
  // Copy the prefix alone, so that AddressSanitizer detects a read past it.
  const std::string info = FullInfo().substr(0, bytes);
  return ParseTcpInfo(info.data(), info.size());
}

TEST(ParseTcpInfoTest, ReadsEveryField) {
  const TcpInfo info = ParseFirst(248);
  EXPECT_EQ(info.retransmitted_packets, 7u);
  EXPECT_EQ(info.rtos, 513);
  EXPECT_EQ(info.receive_window_bytes, 2920u);
  EXPECT_EQ(info.acknowledged_bytes, 5'000'000'000u);
  EXPECT_EQ(info.unacknowledged_packets, 3u);
  EXPECT_EQ(info.congestion_window_packets, 12u);
  EXPECT_EQ(info.smoothed_rtt, absl::Microseconds(1500));
  EXPECT_EQ(info.min_rtt, absl::Microseconds(900));
  EXPECT_EQ(info.since_data_sent, absl::Milliseconds(40));
  EXPECT_EQ(info.out_of_order_packets, 5u);
  EXPECT_EQ(info.received_bytes, 6'000'000'000u);
  EXPECT_EQ(info.since_data_received, absl::Milliseconds(210));
}

TEST(ParseTcpInfoTest, TakesTheFieldsOfLaterKernelsForNothing) {
  const std::string longer = FullInfo() + std::string(100, '\xff');
  const TcpInfo info = ParseTcpInfo(longer.data(), longer.size());
  EXPECT_EQ(info.rtos, 513);
  EXPECT_EQ(info.received_bytes, 6'000'000'000u);
}

TEST(ParseTcpInfoTest, KnowsNoTimeoutsOfKernelsThatDoNotTellOfThem) {
  for (const size_t bytes : {kTotalRtoOffset, kTotalRtoOffset + 1}) {
    const TcpInfo info = ParseFirst(bytes);
    EXPECT_EQ(info.rtos, std::nullopt) << bytes;
    EXPECT_EQ(info.out_of_order_packets, 5u);
  }
  EXPECT_EQ(ParseFirst(kTotalRtoOffset + 2).rtos, 513);
}

TEST(ParseTcpInfoTest, LeavesWhatAnOlderKernelDoesNotGiveAtItsDefault) {
  const TcpInfo before_5_4 = ParseFirst(offsetof(tcp_info, tcpi_rcv_ooopack));
  EXPECT_EQ(before_5_4.out_of_order_packets, 0u);
  EXPECT_EQ(before_5_4.min_rtt, absl::Microseconds(900));
  const TcpInfo of_linux_3 = ParseFirst(offsetof(tcp_info, tcpi_pacing_rate));
  EXPECT_EQ(of_linux_3.received_bytes, 0u);
  EXPECT_EQ(of_linux_3.min_rtt, std::nullopt);
  EXPECT_EQ(of_linux_3.retransmitted_packets, 7u);
  EXPECT_EQ(of_linux_3.smoothed_rtt, absl::Microseconds(1500));
}

TEST(ParseTcpInfoTest, KnowsNoMinRttBeforeTheFirstRoundTrip) {
  for (const uint32_t none : {0U, ~0U}) {
    std::string bytes = FullInfo();
    std::memcpy(bytes.data() + offsetof(tcp_info, tcpi_min_rtt), &none, sizeof(none));
    EXPECT_EQ(ParseTcpInfo(bytes.data(), bytes.size()).min_rtt, std::nullopt) << none;
  }
}

TEST(ParseTcpInfoTest, MakesNothingOfNothing) {
  const TcpInfo info = ParseFirst(0);
  EXPECT_EQ(info.retransmitted_packets, 0u);
  EXPECT_EQ(info.rtos, std::nullopt);
  EXPECT_EQ(info.congestion_window_packets, 0u);
  EXPECT_EQ(info.smoothed_rtt, absl::ZeroDuration());
  EXPECT_EQ(info.min_rtt, std::nullopt);
  EXPECT_EQ(info.received_bytes, 0u);
}

}  // namespace
}  // namespace sluice
