#include "lib/sharing/share_division.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace sluice {
namespace {

int64_t ShareAt(double level, const ShareClaim& claim) {
  const double wanted = std::min(level * claim.weight, static_cast<double>(claim.cap_bytes));
  return std::max(static_cast<int64_t>(wanted), claim.floor_bytes);
}

int64_t SumAt(double level, const std::vector<ShareClaim>& claims) {
  int64_t sum = 0;
  for (const ShareClaim& claim : claims) sum += ShareAt(level, claim);
  return sum;
}

}  // namespace

// Uses bisection: it takes a few additions per claim, is exact to a byte, and needs no ordered breakpoints, which are
// easy to get wrong.
std::vector<int64_t> DivideByWeight(int64_t bytes, const std::vector<ShareClaim>& claims) {
  constexpr int kSteps = 64;
  double low = 0;
  double high = 0;
  for (const ShareClaim& claim : claims) high = std::max(high, static_cast<double>(claim.cap_bytes) / claim.weight);
  high = std::nextafter(high, INFINITY);
  if (SumAt(high, claims) <= bytes) low = high;
  for (int step = 0; step < kSteps && low < high; ++step) {
    const double middle = low + (high - low) / 2;
    (SumAt(middle, claims) <= bytes ? low : high) = middle;
  }
  std::vector<int64_t> shares;
  shares.reserve(claims.size());
  for (const ShareClaim& claim : claims) shares.push_back(ShareAt(low, claim));
  assert(SumAt(low, claims) <= bytes);  // in debug builds alone; LinkDivider checks the sum of the leases always
  return shares;
}

}  // namespace sluice
