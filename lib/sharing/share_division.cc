#include "lib/sharing/share_division.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

namespace sluice {
namespace {

std::vector<int64_t> AtLevel(double level, const std::vector<ShareClaim>& claims) {
  std::vector<int64_t> shares;
  shares.reserve(claims.size());
  for (const ShareClaim& claim : claims) {
    const double wanted = std::min(level * claim.weight, static_cast<double>(claim.cap_bytes));
    shares.push_back(std::max(static_cast<int64_t>(wanted), claim.floor_bytes));
  }
  return shares;
}

int64_t Sum(const std::vector<int64_t>& shares) {
  return std::accumulate(shares.begin(), shares.end(), int64_t{0});
}

}  // namespace

// Uses bisection: it takes a few additions per claim, is exact to a byte, and needs no ordered breakpoints, which are
// easy to get wrong.
std::vector<int64_t> DivideByWeight(int64_t bytes, const std::vector<ShareClaim>& claims) {
  constexpr int kSteps = 64;
  double low = 0;
  double high = 0;
  for (const ShareClaim& claim : claims) high = std::max(high, static_cast<double>(claim.cap_bytes) / claim.weight);
  if (std::vector<int64_t> all = AtLevel(std::nextafter(high, INFINITY), claims); Sum(all) <= bytes) return all;
  for (int step = 0; step < kSteps; ++step) {
    const double middle = low + (high - low) / 2;
    (Sum(AtLevel(middle, claims)) <= bytes ? low : high) = middle;
  }
  std::vector<int64_t> shares = AtLevel(low, claims);
  assert(Sum(shares) <= bytes);
  return shares;
}

}  // namespace sluice
