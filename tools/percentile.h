#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace sluice {

// Returns the nearest-rank percentile, 0 < p <= 1: the smallest value that at least a share p of all values does not
// exceed. Returns 0 if there are no values.
inline double Percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(p * static_cast<double>(values.size())));
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

}  // namespace sluice
