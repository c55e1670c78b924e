#include "lib/sharing/share_division.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace sluice {
namespace {

double RealShareAt(double level, const ShareClaim& claim) {
  return std::max(std::min(level * claim.weight, static_cast<double>(claim.cap_bytes)),
                  static_cast<double>(claim.floor_bytes));
}

int64_t ShareAt(double level, const ShareClaim& claim) {
  return static_cast<int64_t>(RealShareAt(level, claim));
}

int64_t SumAt(double level, const std::vector<ShareClaim>& claims) {
  int64_t sum = 0;
  for (const ShareClaim& claim : claims) sum += ShareAt(level, claim);
  return sum;
}

// Uses bisection, because ordered breakpoints are easy to get wrong. Each step settles the claims that have their cap,
// their floor, or their weight times the level at all levels that are left. The last step is exact, and a step takes
// less time than the previous one.
double LevelOf(int64_t bytes, const std::vector<ShareClaim>& claims) {
  constexpr int kSteps = 64;
  double low = 0;
  double high = 0;
  for (const ShareClaim& claim : claims) high = std::max(high, static_cast<double>(claim.cap_bytes) / claim.weight);
  high = std::nextafter(high, INFINITY);
  if (SumAt(high, claims) <= bytes) return high;
  std::vector<ShareClaim> open = claims;
  auto left = static_cast<double>(bytes);
  double weights = 0;
  const auto settle = [&](const ShareClaim& claim) {
    const auto cap = static_cast<double>(claim.cap_bytes);
    const auto floor = static_cast<double>(claim.floor_bytes);
    if (low * claim.weight >= cap || high * claim.weight <= floor) {
      left -= low * claim.weight >= cap ? cap : floor;
      return true;
    }
    if (low * claim.weight < floor || high * claim.weight > cap) return false;
    weights += claim.weight;
    return true;
  };
  for (int step = 0; step < kSteps && !open.empty() && low < high; ++step) {
    const double middle = low + (high - low) / 2;
    double sum = middle * weights;
    for (const ShareClaim& claim : open) sum += RealShareAt(middle, claim);
    (sum <= left ? low : high) = middle;
    open.erase(std::remove_if(open.begin(), open.end(), settle), open.end());
  }
  return open.empty() && weights > 0 ? std::clamp(left / weights, low, high) : low;
}

}  // namespace

std::vector<int64_t> DivideByWeight(int64_t bytes, const std::vector<ShareClaim>& claims) {
  constexpr double kRoundingError = 1e-15;
  double level = LevelOf(bytes, claims);
  while (level > 0 && SumAt(level, claims) > bytes) level *= 1 - kRoundingError;
  std::vector<int64_t> shares;
  shares.reserve(claims.size());
  for (const ShareClaim& claim : claims) shares.push_back(ShareAt(level, claim));
  assert(SumAt(level, claims) <= bytes);  // in debug builds alone; LinkDivider checks the sum of the leases always
  return shares;
}

}  // namespace sluice
