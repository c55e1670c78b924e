#pragma once

#include <bit>
#include <cstdint>

#include "lib/scheduling/schedule_events.h"

namespace sluice {

// The place of a block in the order in which blocks are served: the smallest first, in powers of two, and the oldest
// first among blocks of the same power. So blocks of equal size are served one after the other, and the rank of a block
// changes rarely. A block that cannot make its deadline any more comes last.
struct BlockOrder {
  static constexpr int kRanks = 64;
  static constexpr int kLate = kRanks - 1;  // the rank of a block that cannot make its deadline any more

  // The rank of this many bytes, in units of the budget.
  static int RankOf(int64_t bytes) {
    return static_cast<int>(std::bit_width(static_cast<uint64_t>(bytes) / kUnitBytes));
  }
  // With grants, the rank of a block among the blocks whose requests wait: by the requests that it has sent. For a
  // block that is not small, kNotSmall is added.
  static int RankOfRequests(int64_t sent_requests) {
    return static_cast<int>(std::bit_width(static_cast<uint64_t>(sent_requests)));
  }
  static constexpr int kNotSmall = kRanks / 2 - 1;
  static constexpr int kStocked = kRanks - 1;  // the rank of a block that needs no more requests now

  int rank = 0;
  BlockId id = 0;
  friend bool operator<(const BlockOrder& a, const BlockOrder& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.id < b.id;
  }

 private:
  static constexpr uint64_t kUnitBytes = 1024;  // smaller differences are not worth a change of the order
};

}  // namespace sluice
