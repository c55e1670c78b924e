#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sluice {

// Describes one bottleneck link for the model: the last hop into the aggregator and the buffer of the switch port that
// feeds it. A plain value. The defaults describe a gigabit port with a shallow buffer, Ethernet and Linux.
struct LinkProfile {
  // C: capacity in bytes of frames per second, 1e3 to 1e12.
  double capacity_bytes_per_second = 125e6;

  // B: the buffer of the port. Most switches count bytes, some count packets: set one of the two and leave the other 0.
  // One frame (at most 1514 bytes of it) to 2^40 bytes, or 1 to 2^24 packets.
  int64_t buffer_bytes = int64_t{32} * 1024;
  int64_t buffer_packets = 0;

  // R: the round trip from a request to the first byte of its response, without queueing. Above 0, at most 10 s.
  absl::Duration propagation_rtt = absl::Microseconds(100);

  // S_DATA, S_f, S_ACK: application bytes in a full packet, bytes of that packet in the buffer, bytes of an
  // acknowledgement in the buffer. 1 to 2^17; a frame is not smaller than its payload.
  int64_t packet_payload_bytes = 1448;
  int64_t frame_bytes = 1514;
  int64_t ack_frame_bytes = 66;

  // Δt: the step of the aggregator's timers, 1 ns to 10 s. d_max: how late a timer fires at most, 0 to 10 s.
  absl::Duration timer_granularity = absl::Microseconds(50);
  absl::Duration timer_jitter = absl::Microseconds(200);

  // Whether the connections are new when a request arrives, as for a client that connects for each call. A new
  // connection is in slow start from the initial window. The connections of a Link are persistent: their congestion
  // windows are already open, so a response may come as one burst.
  bool fresh_connections = false;
  // IW: the initial congestion window, 1 to 2^16 packets. Linux has 10 (RFC 6928). Only fresh connections use it.
  int64_t initial_window_packets = 10;

  // Sets the payload, frame and ACK sizes for IPv4, TCP with timestamps (RFC 7323), and Ethernet without its checksum.
  // An MTU below 53 bytes leaves no room for payload, and Validate refuses it.
  void SetMtu(int64_t mtu_bytes);

  // Returns InvalidArgument that names the field, its value and its bound. If it returns OK, every function of the
  // model is defined.
  absl::Status Validate() const;

  friend bool operator==(const LinkProfile&, const LinkProfile&) = default;
};

}  // namespace sluice
