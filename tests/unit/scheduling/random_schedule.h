#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <random>

#include "absl/time/time.h"
#include "lib/scheduling/link_schedule.h"

namespace sluice {

// The random draws of one life of a schedule. There is one for each life.
class RandomDraws {
 public:
  explicit RandomDraws(uint64_t seed) : random_(seed) {}

  int64_t Between(int64_t low, int64_t high) { return low + static_cast<int64_t>(random_() % (high - low + 1)); }
  bool Chance(int64_t percent) { return Between(1, 100) <= percent; }
  int64_t Pick(std::initializer_list<int64_t> values) { return *(values.begin() + Between(0, std::ssize(values) - 1)); }

 private:
  std::mt19937_64 random_;
};

// Draws a policy, and a port on which each byte takes `byte_time`.
inline ScheduleOptions RandomOptions(RandomDraws& draws, std::chrono::nanoseconds byte_time) {
  ScheduleOptions options;
  options.policy = static_cast<SchedulePolicy>(std::min<int64_t>(draws.Between(0, 5), 3));
  LinkProfile& profile = options.profile;
  profile.capacity_bytes_per_second = 1e9 / static_cast<double>(byte_time.count());
  profile.packet_payload_bytes = draws.Pick({1000, 1448});
  profile.frame_bytes = profile.packet_payload_bytes + draws.Pick({0, 40, 66});
  profile.buffer_packets = draws.Chance(25) ? draws.Between(2, 60) : 0;
  profile.buffer_bytes = profile.buffer_packets > 0 ? 0 : draws.Between(2000, 100'000);
  profile.propagation_rtt = absl::Microseconds(draws.Between(1, 2000));
  profile.timer_granularity = absl::Microseconds(draws.Pick({50, 1000}));
  profile.timer_jitter = absl::Microseconds(draws.Pick({20, 200}));
  if (draws.Chance(30)) {
    const int64_t buffer = profile.buffer_bytes + profile.buffer_packets * profile.frame_bytes;
    options.budget_bytes = draws.Between(1, buffer);
  }
  options.record_overhead_bytes = draws.Pick({0, 9, 31, 5000});
  options.stall_timeout = absl::Microseconds(draws.Between(1, draws.Chance(20) ? 1000 : 1'000'000));
  options.shortest_first = draws.Chance(80);
  options.queue_limit = draws.Chance(20) ? draws.Between(1, 40) : 1000;
  return options;
}

}  // namespace sluice
