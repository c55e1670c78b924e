#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "lib/scheduling/link_schedule.h"

namespace sluice {

// Measures since when bytes wait for the other end of a socket that reads none of them. There is one for each watched
// direction. Not thread-safe.
class UnsentWatch {
 public:
  void OnWritten(size_t bytes) { written_bytes_ += bytes; }
  // `unsent_bytes` is the number of written bytes that have not left. The interval between calls limits the precision
  // of since().
  void Look(size_t unsent_bytes, TimePoint now) {
    const bool taken = std::exchange(taken_bytes_, written_bytes_ - unsent_bytes) != taken_bytes_;
    if (unsent_bytes == 0) {
      since_ = TimePoint::max();
    } else if (taken || since_ == TimePoint::max()) {
      since_ = now;
    }
  }
  // TimePoint::max(): no bytes wait. A read of the other end restarts the time.
  TimePoint since() const { return since_; }

 private:
  uint64_t written_bytes_ = 0;
  uint64_t taken_bytes_ = 0;  // written bytes that had left at the last Look
  TimePoint since_ = TimePoint::max();
};

}  // namespace sluice
