#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "sluice/link_schedule.h"

namespace sluice {

// Limits how many streams of a worker are reset: 5 a second, with a burst of 100. Servers that defend themselves
// against rapid resets (CVE-2023-44487) end connections above 33 a second (nghttp2) or 200 in 30 s (Netty). There is
// one for each Worker. It reads no clock.
class ResetAllowance {
 public:
  // Returns false if no stream may be reset now; its answer then comes within the budget.
  bool Take(TimePoint now) {
    const std::chrono::duration<double> elapsed = now - std::exchange(since_, std::max(now, since_));
    resets_ = std::min(kBurst, resets_ + kPerSecond * std::max(elapsed.count(), 0.0));
    if (resets_ < 1) return false;
    resets_ -= 1;
    return true;
  }

  // Take succeeds from then on.
  TimePoint Next() const {
    if (resets_ >= 1) return since_;
    const std::chrono::duration<double> missing((1 - resets_) / kPerSecond);
    // A microsecond more, since both are rounded.
    return since_ + std::chrono::duration_cast<TimePoint::duration>(missing) + std::chrono::microseconds(1);
  }

 private:
  static constexpr double kPerSecond = 5;
  static constexpr double kBurst = 100;

  double resets_ = kBurst;
  TimePoint since_;
};

}  // namespace sluice
