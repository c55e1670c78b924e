#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sluice/time_point.h"

#include "absl/strings/str_cat.h"

namespace sluice::testing {

// A response of a fan-out that was ready before a turn of the client's thread, at the end of the turn.
struct DeadlineResponse {
  uint64_t block = 0;  // of its fan-out
  size_t traffic_class = 0;
  TimePoint deadline;
  int64_t rest_bytes = 0;  // of its message, which have not come
  bool granted = false;    // bytes were granted in this turn
  bool could_be = false;   // it has no grant, and nothing but the order holds it
  bool held_long = false;  // so long that it may precede all others
};

// Checks that a block that cannot make its deadline any more gives way to the others of its class (the order of
// docs/internals/scheduling.md). It knows only what is certain: a block is late if what is ready of it takes longer
// than the rest of its time, and is not late with a deadline in kFar.
class LateBlocks {
 public:
  static constexpr std::chrono::seconds kFar{10};

  explicit LateBlocks(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // Returns the breach, if there is one.
  std::optional<std::string> Check(const std::vector<DeadlineResponse>& responses, TimePoint now) {
    std::map<uint64_t, int64_t> rest_bytes;
    for (const DeadlineResponse& response : responses) rest_bytes[response.block] += response.rest_bytes;
    const auto late = [&](const DeadlineResponse& response) {
      const std::chrono::duration<double> needed(static_cast<double>(rest_bytes[response.block]) / bytes_per_second_);
      return response.rest_bytes > 0 && now + needed > response.deadline;
    };
    for (const DeadlineResponse& waits : responses) {
      if (!waits.could_be || waits.deadline < now + kFar) continue;
      for (const DeadlineResponse& other : responses) {
        if (other.traffic_class != waits.traffic_class || !late(other)) continue;
        if (!other.granted) ++gave_way_;
        if (!other.granted || other.held_long) continue;
        return absl::StrCat("a response of block ", other.block,
                            ", which is late, was granted bytes before one of block ", waits.block);
      }
    }
    return std::nullopt;
  }

  // How often a response of a late block waited with a response of another one.
  uint64_t gave_way() const { return gave_way_; }

 private:
  const double bytes_per_second_;
  uint64_t gave_way_ = 0;
};

}  // namespace sluice::testing
