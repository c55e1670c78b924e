#pragma once

#include "sluice/link_profile.h"

namespace sluice {

// The link with the paper's own numbers: a gigabit port with a buffer of 32 KB, 32 packets of 1000 bytes, fresh
// connections, and a window of 1.
inline LinkProfile PaperProfile() {
  LinkProfile profile;
  profile.capacity_bytes_per_second = 125e6;
  profile.buffer_bytes = 32'000;
  profile.propagation_rtt = absl::Microseconds(100);
  profile.packet_payload_bytes = 1000;
  profile.frame_bytes = 1040;
  profile.ack_frame_bytes = 40;
  profile.timer_granularity = absl::Milliseconds(1);
  profile.timer_jitter = absl::Microseconds(20);
  profile.initial_window_packets = 1;
  profile.fresh_connections = true;
  return profile;
}

// The same link with gRPC's connections.
inline LinkProfile PersistentProfile() {
  LinkProfile profile = PaperProfile();
  profile.initial_window_packets = 10;
  profile.fresh_connections = false;
  return profile;
}

}  // namespace sluice
