#pragma once

#include <algorithm>
#include <bit>
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

// Checks that a ready response does not wait for larger blocks of its class, except for the parts of the oldest one: at
// most one for each budget of bytes of the class, and one (the order of docs/internals/scheduling.md). It knows only
// what is certain: a block has at most the bytes that were granted to it or announced, and at least the ready bytes
// that have not come. Blocks of a similar size, and blocks that may be late, are not checked.
class SmallBlocks {
 public:
  struct Bounds {
    int64_t budget_bytes = 0;
    int64_t part_bytes = 0;  // the largest cost of one grant
    double bytes_per_second = 0;
    TimePoint::duration slack{0};  // a block with less time than this, and twice the time of its bytes, may be late
  };
  explicit SmallBlocks(const Bounds& bounds) : bounds_(bounds) {}

  // `most_bytes` are the bytes that were granted to each block with a response that waits, or announced by it, since
  // the start. Returns the breach, if there is one.
  std::optional<std::string> Check(const std::vector<OpenResponse>& responses, const std::vector<TurnGrant>& grants,
                                   const std::map<uint64_t, int64_t>& most_bytes, TimePoint now) {
    if (most_bytes.empty()) {
      waited_.clear();
      return std::nullopt;
    }
    std::map<uint64_t, int64_t> rest_bytes;
    std::map<uint64_t, int64_t> ready_bytes;
    for (const OpenResponse& response : responses) {
      rest_bytes[response.block] += response.rest_bytes;
      if (response.ready) ready_bytes[response.block] += response.rest_bytes;
    }
    const auto may_be_late = [&](const OpenResponse& response) {
      const std::chrono::duration<double> needed(2 * static_cast<double>(rest_bytes[response.block]) /
                                                 bounds_.bytes_per_second);
      return now + needed + bounds_.slack > response.deadline;
    };
    std::map<std::pair<uint64_t, uint32_t>, Waited> waited;
    std::optional<std::string> breach;
    for (const OpenResponse& waits : responses) {
      if (!waits.waits || may_be_late(waits)) continue;
      const int rank = MostRank(most_bytes.at(waits.block));
      Waited& so_far = waited[waits.id];
      if (const auto before = waited_.find(waits.id); before != waited_.end()) so_far = before->second;
      const auto is_larger = [&](uint64_t block) {
        const auto found = ready_bytes.find(block);
        return found != ready_bytes.end() && LeastRank(found->second) > rank;
      };
      for (const TurnGrant& grant : grants) {
        if (grant.traffic_class != waits.traffic_class) continue;
        so_far.class_bytes += grant.cost_bytes;
        if (!grant.perhaps && is_larger(grant.block)) so_far.larger_bytes += grant.cost_bytes;
      }
      if (!so_far.counted) {
        so_far.counted = std::any_of(responses.begin(), responses.end(), [&](const OpenResponse& other) {
          return other.ready && other.traffic_class == waits.traffic_class && is_larger(other.block);
        });
        if (so_far.counted) ++beside_larger_;
      }
      const int64_t turns = 1 + so_far.class_bytes / bounds_.budget_bytes;
      if (so_far.larger_bytes <= turns * bounds_.part_bytes) continue;
      breach = absl::StrCat("a ready response of block ", waits.block, " has waited for ", so_far.larger_bytes,
                            " bytes of larger blocks, and for ", so_far.class_bytes, " bytes in all");
    }
    waited_ = std::move(waited);
    return breach;
  }
  void Restart() { waited_.clear(); }

  // How many responses waited while a response of a larger block was ready.
  uint64_t beside_larger() const { return beside_larger_; }

 private:
  // The bytes that were granted while a response waited.
  struct Waited {
    int64_t larger_bytes = 0;
    int64_t class_bytes = 0;
    bool counted = false;
  };

  // The ranks of the schedule: binary digits of KiB, and a multiple of four while a size is unknown.
  static int MostRank(int64_t bytes) { return std::bit_width(static_cast<uint64_t>(bytes) / 1024); }
  static int LeastRank(int64_t bytes) { return MostRank(bytes) / 4 * 4; }

  const Bounds bounds_;
  std::map<std::pair<uint64_t, uint32_t>, Waited> waited_;
  uint64_t beside_larger_ = 0;
};

}  // namespace sluice::testing
