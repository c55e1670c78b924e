#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace sluice {

// A quantile of the last 512 values. New values replace old ones, so it follows changes. It is recomputed once every 32
// values. Not thread-safe.
class RecentQuantile {
 public:
  explicit RecentQuantile(double quantile) : quantile_(quantile) {}  // between 0 and 1

  void Observe(double value);
  std::optional<double> value() const { return value_; }  // empty before the first few values

 private:
  const double quantile_;
  std::vector<double> values_;  // a ring buffer once it is full
  size_t observed_ = 0;
  std::optional<double> value_;
};

}  // namespace sluice
