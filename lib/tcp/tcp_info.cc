#include "lib/tcp/tcp_info.h"

#include <algorithm>
#include <cstring>
#include <optional>

// <netinet/tcp.h>, which Boost.Asio includes, does not suffice: its tcp_info ends with the members of Linux 3.
#include <linux/tcp.h>

namespace sluice {
namespace {

constexpr uint32_t kNoMinRtt = ~0U;

// tcpi_rcv_wnd, 32 bits, since Linux 6.2, and tcpi_total_rto, 16 bits, since Linux 6.7. The headers of Debian 12 end
// before them.
constexpr size_t kReceiveWindowOffset = 232;
constexpr size_t kTotalRtoOffset = 240;

// Returns the member at this offset; nothing if the kernel's struct ends before it.
template <class Value>
std::optional<Value> MemberAt(const void* data, size_t bytes, size_t offset) {
  Value value{};
  if (bytes < offset + sizeof(value)) return std::nullopt;
  std::memcpy(&value, static_cast<const char*>(data) + offset, sizeof(value));
  return value;
}

}  // namespace

TcpInfo ParseTcpInfo(const void* data, size_t bytes) {
  tcp_info known{};
  std::memcpy(&known, data, std::min(bytes, sizeof(known)));
  TcpInfo info{.retransmitted_packets = known.tcpi_total_retrans,
               .duplicate_packets = known.tcpi_dsack_dups,
               .rtos = MemberAt<uint16_t>(data, bytes, kTotalRtoOffset),
               .acknowledged_bytes = known.tcpi_bytes_acked,
               .unacknowledged_packets = known.tcpi_unacked,
               .congestion_window_packets = known.tcpi_snd_cwnd,
               .smoothed_rtt = absl::Microseconds(known.tcpi_rtt),
               .since_data_sent = absl::Milliseconds(known.tcpi_last_data_sent),
               .out_of_order_packets = known.tcpi_rcv_ooopack,
               .received_bytes = known.tcpi_bytes_received,
               .received_packets = known.tcpi_segs_in,
               .since_data_received = absl::Milliseconds(known.tcpi_last_data_recv),
               .receive_window_bytes = MemberAt<uint32_t>(data, bytes, kReceiveWindowOffset),
               .packet_payload_bytes = known.tcpi_snd_mss,
               .recent_packet_bytes = known.tcpi_rcv_mss,
               .received_payload_bytes = known.tcpi_advmss,
               .timestamps = (known.tcpi_options & TCPI_OPT_TIMESTAMPS) != 0,
               .path_mtu_bytes = known.tcpi_pmtu};
  if (known.tcpi_min_rtt != kNoMinRtt && known.tcpi_min_rtt != 0) {
    info.min_rtt = absl::Microseconds(known.tcpi_min_rtt);
  }
  return info;
}

}  // namespace sluice
