#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace sluice {

// The kernel's state of one TCP connection at one moment: the members of struct tcp_info (linux/tcp.h) that Sluice
// uses. Counts begin when the connection was made. A plain value.
struct TcpInfo {
  // Counts as a sender.
  uint32_t retransmitted_packets = 0;      // tcpi_total_retrans
  uint32_t duplicate_packets = 0;          // tcpi_dsack_dups, from Linux 4.18: the peer had received them already
  std::optional<uint16_t> rtos;            // tcpi_total_rto, from Linux 6.7; wraps
  uint64_t acknowledged_bytes = 0;         // tcpi_bytes_acked, from Linux 4.1
  uint32_t unacknowledged_packets = 0;     // tcpi_unacked
  uint32_t congestion_window_packets = 0;  // tcpi_snd_cwnd
  absl::Duration smoothed_rtt;             // tcpi_rtt; 0 before the first acknowledgement
  std::optional<absl::Duration> min_rtt;   // tcpi_min_rtt; none before the first
  absl::Duration since_data_sent;          // tcpi_last_data_sent, in the kernel's ticks of 1 to 10 ms
  // Counts as a receiver.
  uint32_t out_of_order_packets = 0;   // tcpi_rcv_ooopack, from Linux 5.4: an earlier packet was lost, or overtaken
  uint64_t received_bytes = 0;         // tcpi_bytes_received
  uint32_t received_packets = 0;       // tcpi_segs_in, with acknowledgements
  absl::Duration since_data_received;  // tcpi_last_data_recv, in ticks
  std::optional<uint32_t> receive_window_bytes;  // tcpi_rcv_wnd, from Linux 6.2: what the peer may send
  // Properties of the path.
  uint32_t packet_payload_bytes = 0;    // tcpi_snd_mss: of a full packet, without TCP's options
  uint32_t recent_packet_bytes = 0;     // tcpi_rcv_mss: payload of the recent packets of the peer, at first a guess
  uint32_t received_payload_bytes = 0;  // tcpi_advmss: the most payload of a packet of the peer
  bool timestamps = false;              // an option of 12 bytes in every packet (RFC 7323)
  uint32_t path_mtu_bytes = 0;          // tcpi_pmtu
};

// Parses the kernel's struct. Older kernels return a shorter struct; missing members keep the defaults above.
TcpInfo ParseTcpInfo(const void* data, size_t bytes);

}  // namespace sluice
