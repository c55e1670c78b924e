#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/fan_out/virtual_fan_out_fixture.h"

namespace sluice {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using testing::VirtualWorker;

// Reads of any 4 of 6 fragments. Workers respond after 1 to 3 ms, and the last ones after `slow_after_`.
class FanOutQuorumTest : public testing::VirtualFanOutTest {
 protected:
  static constexpr size_t kWorkers = 6;
  static constexpr size_t kNeeded = 4;

  void SetUp() override {
    Start(kWorkers, [this](VirtualWorker::Call& call) {
      const size_t worker = std::stoul(call.request());
      const nanoseconds think = microseconds(1000 + random_() % 2000);
      if (worker < slow_) {
        if (slow_after_.count() > 0) Answer(call, slow_after_);
      } else {
        Answer(call, think);
      }
    });
  }
  void Answer(VirtualWorker::Call& call, nanoseconds after) {
    executor_.After(after, [&call] {
      call.Answer(std::string(8'000, 'x'));
      call.connection().Flush();
    });
  }

  // Returns the 99th percentile.
  nanoseconds Read(int reads) {
    std::vector<nanoseconds> took;
    for (int i = 0; i < reads; ++i) {
      const TimePoint began = executor_.Now();
      const Asked& asked = AskFirst(
          kWorkers, {.timeout = absl::Seconds(5), .fail_limit = kWorkers - kNeeded, .success_quorum = kNeeded});
      EXPECT_TRUE(AwaitEnd(asked));
      EXPECT_TRUE(asked.result->status.ok()) << asked.result->status;
      EXPECT_EQ(asked.messages, kNeeded);
      EXPECT_EQ(asked.result->answered, kNeeded);
      took.push_back(executor_.Now() - began);
    }
    std::sort(took.begin(), took.end());
    return took[took.size() * 99 / 100];
  }

  std::mt19937 random_{1};
  size_t slow_ = 0;
  nanoseconds slow_after_{0};  // 0: they hang
};

TEST_F(FanOutQuorumTest, OneSlowWorkerDelaysNoRead) {
  const nanoseconds healthy = Read(1000);
  slow_ = 1;
  slow_after_ = milliseconds(300);
  const nanoseconds with_slow = Read(1000);
  EXPECT_LE(with_slow, healthy * 6 / 5) << "healthy " << healthy.count() << " ns, slow " << with_slow.count() << " ns";
}

TEST_F(FanOutQuorumTest, TwoWorkersMayHangAndGetNoMoreResetsThanTheirAllowance) {
  slow_ = 2;
  const TimePoint began = executor_.Now();
  Read(2000);
  const double elapsed = std::chrono::duration<double>(executor_.Now() - began).count();
  for (size_t worker = 0; worker < kWorkers; ++worker) {
    EXPECT_LE(static_cast<double>(workers_[worker]->resets()), 15 + 5 * elapsed) << worker;
  }
}

}  // namespace
}  // namespace sluice
