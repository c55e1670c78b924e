#pragma once

#include <chrono>
#include <cstdint>

#include "absl/time/time.h"
#include "lib/scheduling/link_schedule.h"

namespace sluice {

// A byte takes a microsecond and frames have no overhead, so a response of whole packets costs its payload. Headers
// cost 192 bytes. Before the first response is ready, 17 requests may be out.
inline ScheduleOptions GrantsOptions() {
  ScheduleOptions options;
  options.policy = SchedulePolicy::kGrants;
  options.profile.capacity_bytes_per_second = 1e6;
  options.profile.buffer_bytes = 10'000;
  options.profile.propagation_rtt = absl::Milliseconds(1);
  options.profile.packet_payload_bytes = 1000;
  options.profile.frame_bytes = 1000;
  options.stall_timeout = absl::Milliseconds(300);
  options.shortest_first = false;
  return options;
}

// The same link with another policy.
inline ScheduleOptions OptionsWith(SchedulePolicy policy) {
  ScheduleOptions options = GrantsOptions();
  options.policy = policy;
  return options;
}

constexpr std::chrono::nanoseconds kTick{1};
constexpr std::chrono::milliseconds kDrainTime{11};  // R + B/C
constexpr std::chrono::milliseconds kStallTime = std::chrono::milliseconds(300) + kDrainTime;
constexpr std::chrono::milliseconds kThink{20};  // longer than a full port drains: requests leave without grants

}  // namespace sluice
