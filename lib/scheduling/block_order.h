#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "lib/scheduling/schedule_events.h"

namespace sluice {

// The place of a block in the order in which blocks are served: the shortest remaining block first, in powers of two,
// and the oldest first among blocks of the same power. So blocks of equal size are served one after the other, and the
// rank of a block changes rarely. A block that cannot make its deadline any more comes last.
struct BlockOrder {
  static constexpr int kRanks = 64;
  static constexpr int kLate = kRanks - 1;  // the rank of a block that cannot make its deadline any more

  // The rank of a block with `remaining_bytes` still to come, in units of the budget.
  static int RankOf(int64_t remaining_bytes) {
    return static_cast<int>(std::bit_width(static_cast<uint64_t>(remaining_bytes) / kUnitBytes));
  }

  int rank = 0;
  BlockId id = 0;
  friend bool operator<(const BlockOrder& a, const BlockOrder& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.id < b.id;
  }

 private:
  static constexpr uint64_t kUnitBytes = 1024;  // smaller differences are not worth a change of the order
};

// The order of blocks by age: those that cannot make their deadline any more are the youngest.
using BlockAge = std::pair<bool, BlockId>;

}  // namespace sluice
