#pragma once

#include <cstdint>
#include <vector>

namespace sluice {

// One claim on a divided quantity, in bytes; 0 <= floor <= cap.
struct ShareClaim {
  double weight = 1;  // above 0
  int64_t floor_bytes = 0;
  int64_t cap_bytes = 0;
};

// Weighted max-min fairness (water filling): each claim gets its weight times a common level, at least its floor and at
// most its cap. Bytes above the cap of one claim go to the other claims. Returns the shares in the order of the claims.
// Their sum is at most `bytes`; if the caps allow it, the sum misses `bytes` by at most a byte per claim. The sum of
// the floors must be at most `bytes`.
std::vector<int64_t> DivideByWeight(int64_t bytes, const std::vector<ShareClaim>& claims);

}  // namespace sluice
