#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace sluice {

// A quantile of the last few hundred values. New values replace old ones, so it follows a change. It is computed only
// now and then. Not thread-safe.
class RecentQuantile {
 public:
  explicit RecentQuantile(double quantile) : quantile_(quantile) {}  // between 0 and 1

  void Observe(double value);
  std::optional<double> value() const { return value_; }  // empty before the first few values

 private:
  const double quantile_;
  std::vector<double> values_;  // a ring once it is full
  size_t observed_ = 0;
  std::optional<double> value_;
};

}  // namespace sluice
