#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "tests/unit/fan_out/virtual_fan_out_fixture.h"

namespace sluice::testing {

constexpr size_t kMessageBytes = 10'000;

// Fan-outs whose responses the test may leave unmerged.
class FanOutMemoryTest : public VirtualFanOutTest {
 protected:
  // Runs for `time`, and returns the maximum number of waiting bytes.
  int64_t MostWaiting(TimePoint::duration time = std::chrono::seconds(10)) {
    int64_t most_bytes = 0;
    const TimePoint end = executor_.Now() + time;
    while (executor_.Now() < end) {
      executor_.RunFor(time / 10'000);
      most_bytes = std::max(most_bytes, waiting_bytes());
    }
    return most_bytes;
  }
  // Asks the first workers while callbacks are stopped, and checks that waiting messages fill the memory and do not
  // exceed it.
  Asked& AskUnmerged(size_t workers, const AskOptions& options) {
    callbacks_.Stop();
    Asked& asked = AskFirst(workers, options);
    const int64_t most_bytes = MostWaiting();
    EXPECT_LE(most_bytes, kMemory);
    EXPECT_GE(most_bytes, kMemory / 3) << "what fits does come";
    return asked;
  }
  void ExpectOk(const Asked& asked) {
    ASSERT_TRUE(AwaitEnd(asked));
    EXPECT_TRUE(asked.result->status.ok()) << asked.result->status;
  }
  // Starts the callbacks again, and expects all messages.
  void GoOnAndExpect(size_t messages, const Asked& asked) {
    callbacks_.GoOn();
    ExpectOk(asked);
    EXPECT_EQ(asked.messages, messages);
  }
};

}  // namespace sluice::testing
