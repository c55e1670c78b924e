#pragma once

#include <cstdint>
#include <vector>

namespace sluice {

// One claim on something that is divided. In bytes; 0 <= floor <= cap.
struct ShareClaim {
  double weight = 1;  // above 0
  int64_t floor_bytes = 0;
  int64_t cap_bytes = 0;
};

// Weighted max-min fairness (water filling): each claim gets its weight times the same level, but no less than its
// floor and no more than its cap; what one does not want goes to the others. Returns the shares in the order of the
// claims. Together they are at most `bytes`, and if the caps allow all of it but for a byte per claim. The floors
// together must be at most `bytes`.
std::vector<int64_t> DivideByWeight(int64_t bytes, const std::vector<ShareClaim>& claims);

}  // namespace sluice
