#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sluice {

// How a worker's TCP connection meets a request. gRPC's are persistent: their congestion window is already open, so a
// response may come as one burst. A fresh connection starts in slow start from the initial window.
enum class Connections { kPersistent, kFresh };

// What the model needs to know of one bottleneck link: the last hop into the aggregator and the buffer of the switch
// port that feeds it. A plain value. The defaults are a gigabit port with a shallow buffer, Ethernet and Linux.
struct LinkProfile {
  // C. Bytes of frames per second: 1e3 to 1e12.
  double capacity_bytes_per_second = 125e6;

  // B. Exactly one of the two is set, the other is 0: most switches count bytes, some count packets. At most 2^40
  // bytes or 2^24 packets.
  int64_t buffer_bytes = int64_t{32} * 1024;
  int64_t buffer_packets = 0;

  // R. Without queueing; request out, first byte back. Above 0, at most 10 s.
  absl::Duration propagation_rtt = absl::Microseconds(100);

  // S_DATA, S_f, S_ACK: application bytes of a full packet, the same packet in the buffer, an acknowledgement there.
  // At least 1 byte, at most 2^17; a frame is not smaller than its payload.
  int64_t packet_payload_bytes = 1448;
  int64_t frame_bytes = 1514;
  int64_t ack_frame_bytes = 66;

  // Δt and d_max: the step of the aggregator's timers (1 ns to 10 s), and the latest that one fires after its time (0
  // to 10 s).
  absl::Duration timer_granularity = absl::Microseconds(50);
  absl::Duration timer_jitter = absl::Microseconds(200);

  // IW. Linux: 10 packets (RFC 6928); at most 2^16. Only fresh connections use it.
  int64_t initial_window_packets = 10;

  Connections connections = Connections::kPersistent;

  // Sets the payload, frame and ACK sizes for IPv4, TCP with timestamps (RFC 7323), and Ethernet without its checksum.
  // An MTU below 53 bytes leaves no room for payload, and Validate says so.
  void SetMtu(int64_t mtu_bytes);

  // InvalidArgument with the field, its value and its bound; OK when every function of the model is defined.
  absl::Status Validate() const;

  friend bool operator==(const LinkProfile&, const LinkProfile&) = default;
};

}  // namespace sluice
