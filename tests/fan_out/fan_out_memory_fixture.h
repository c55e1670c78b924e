#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "tests/fan_out/virtual_fan_out_fixture.h"

namespace sluice::testing {

constexpr size_t kMessageBytes = 10'000;

// Fan-outs whose responses the test may leave unmerged.
class FanOutMemoryTest : public VirtualFanOutTest {
 protected:
  // Runs for so long, and returns the most bytes that have waited.
  int64_t MostWaiting(TimePoint::duration time = std::chrono::seconds(10)) {
    int64_t most_bytes = 0;
    const TimePoint end = executor_.Now() + time;
    while (executor_.Now() < end) {
      executor_.RunFor(time / 10'000);
      most_bytes = std::max(most_bytes, waiting_bytes());
    }
    return most_bytes;
  }
};

}  // namespace sluice::testing
