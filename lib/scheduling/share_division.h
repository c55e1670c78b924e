#pragma once

#include <cstdint>
#include <vector>

namespace sluice {

// What one of several wants of something that is divided. All in bytes; 0 <= floor <= cap.
struct ShareClaim {
  double weight = 1;  // above 0
  int64_t floor_bytes = 0;
  int64_t cap_bytes = 0;
};

// Weighted max-min fairness (water filling): everybody gets his weight times the same level, but no less than his floor
// and no more than his cap; what one does not want goes to the others. In the order of the claims; together at most
// `bytes`, and all of it but a byte for each claim where the caps allow. The floors together are at most `bytes`.
std::vector<int64_t> DivideByWeight(int64_t bytes, const std::vector<ShareClaim>& claims);

}  // namespace sluice
