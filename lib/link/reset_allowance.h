#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include "lib/scheduling/link_schedule.h"

namespace sluice {

// Limits the stream resets of a worker: 5 a second, with a burst of 15. Any 30 s therefore contain at most 165 resets.
// Servers that defend themselves against rapid resets (CVE-2023-44487) end connections. Netty does so above 200 resets
// in 30 s, and nghttp2 above 33 a second with a burst of 1000. Rust's h2 does so above 20 resets of streams that its
// application has not accepted. There is one for each ResetQueue. It reads no clock.
class ResetAllowance {
 public:
  // Returns false if no stream may be reset now.
  bool Take(TimePoint now) {
    Refill(now);
    if (resets_ < 1) return false;
    resets_ -= 1;
    return true;
  }

  // Counts a reset that happened without Take. Later resets wait for it.
  void Count(TimePoint now) {
    Refill(now);
    resets_ = std::max(resets_ - 1, -burst_);
  }

  // Returns the time from which Take succeeds this many times.
  TimePoint Next(size_t resets = 1) const {
    const double missing_resets = static_cast<double>(resets) - resets_;
    if (missing_resets <= 0) return since_;
    const std::chrono::duration<double> missing(missing_resets / per_second_);
    // Add a microsecond, since both values are rounded.
    return since_ + std::chrono::duration_cast<TimePoint::duration>(missing) + std::chrono::microseconds(1);
  }

  // The worker tolerates fewer resets than this: halve the rate and the burst, down to 1.
  void Lower() {
    per_second_ = std::max(per_second_ / 2, 1.0);
    burst_ = std::max(burst_ / 2, 1.0);
    resets_ = std::min(resets_, burst_);
  }

 private:
  void Refill(TimePoint now) {
    const std::chrono::duration<double> elapsed = now - std::exchange(since_, std::max(now, since_));
    resets_ = std::min(burst_, resets_ + per_second_ * std::max(elapsed.count(), 0.0));
  }

  double per_second_ = 5;
  double burst_ = 15;
  double resets_ = burst_;
  TimePoint since_;
};

}  // namespace sluice
