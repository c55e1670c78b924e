#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "lib/scheduling/link_schedule.h"

namespace sluice {

// Since when bytes wait for the other end of a socket that takes none of them. There is one for each direction that is
// watched. Not thread-safe.
class UnsentWatch {
 public:
  void OnWritten(size_t bytes) { written_bytes_ += bytes; }
  // `unsent_bytes` of what was written have not left. It may be called as rarely as one wants to know the time.
  void Look(size_t unsent_bytes, TimePoint now) {
    const bool taken = std::exchange(taken_bytes_, written_bytes_ - unsent_bytes) != taken_bytes_;
    if (unsent_bytes == 0) {
      since_ = TimePoint::max();
    } else if (taken || since_ == TimePoint::max()) {
      since_ = now;
    }
  }
  // TimePoint::max(): nothing waits, or some was taken.
  TimePoint since() const { return since_; }

 private:
  uint64_t written_bytes_ = 0;
  uint64_t taken_bytes_ = 0;  // of those, at the last look
  TimePoint since_ = TimePoint::max();
};

}  // namespace sluice
