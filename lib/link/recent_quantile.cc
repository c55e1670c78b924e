#include "lib/link/recent_quantile.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr size_t kKept = 512;
constexpr size_t kFirst = 8;   // values before the first quantile
constexpr size_t kEvery = 32;  // values between two computations

}  // namespace

void RecentQuantile::Observe(double value) {
  if (values_.size() < kKept) {
    values_.push_back(value);
  } else {
    values_[observed_ % kKept] = value;
  }
  ++observed_;
  if (observed_ != kFirst && observed_ % kEvery != 0) return;
  std::vector<double> sorted = values_;
  const auto rank = static_cast<size_t>(quantile_ * static_cast<double>(sorted.size()));
  const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(rank, sorted.size() - 1));
  std::nth_element(sorted.begin(), at, sorted.end());
  value_ = *at;
}

}  // namespace sluice
