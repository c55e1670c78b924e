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
#include "tests/simulation/open_response.h"

namespace sluice::testing {

// Checks that a block that cannot make its deadline any more gives way to the others of its class, unless it is the
// oldest (the order of docs/internals/scheduling.md). It knows only what is certain: a block is late if what is ready
// of it takes longer than the rest of its time, and is not late with a deadline in kFar.
class LateBlocks {
 public:
  static constexpr std::chrono::seconds kFar{10};

  explicit LateBlocks(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // Returns the breach, if there is one.
  std::optional<std::string> Check(const std::vector<OpenResponse>& responses, TimePoint now) {
    std::map<uint64_t, int64_t> rest_bytes;
    for (const OpenResponse& response : responses) {
      if (response.ready) rest_bytes[response.block] += response.rest_bytes;
    }
    const auto late = [&](const OpenResponse& response) {
      const std::chrono::duration<double> needed(static_cast<double>(rest_bytes[response.block]) / bytes_per_second_);
      return response.ready && response.rest_bytes > 0 && now + needed > response.deadline;
    };
    for (const OpenResponse& waits : responses) {
      if (!waits.could_be || waits.deadline < now + kFar) continue;
      for (const OpenResponse& other : responses) {
        if (other.traffic_class != waits.traffic_class || !late(other)) continue;
        if (!other.granted) ++gave_way_;
        if (!other.granted || other.block < waits.block) continue;
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
