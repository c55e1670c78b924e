#include "sluice/plan.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

constexpr int64_t kResponseBytes = 10 << 10;
constexpr double kMbit = 1e6;

LinkProfile SlowLink() {
  LinkProfile profile;
  profile.capacity_bytes_per_second = 100e6 / 8;
  profile.buffer_bytes = 32 << 10;
  profile.propagation_rtt = absl::Microseconds(100);
  return profile;
}

double Predict(int64_t workers, absl::Duration think_time) {
  return PredictTunnelGoodputBps(SlowLink(), kResponseBytes, workers, think_time) / kMbit;
}

// research/measurements.md has 68.6 to 73.1 Mbit/s for this case.
TEST(TunnelLoopTest, WorkersThatThinkLeaveTheLinkIdleWhileTheyHoldTheWindows) {
  EXPECT_NEAR(Predict(64, absl::Milliseconds(10)), 70, 4);
}

TEST(TunnelLoopTest, WorkersThatRespondAtOnceFillTheLink) {
  const double link = 100.0 * kResponseBytes / static_cast<double>(WireBytes(SlowLink(), kResponseBytes));
  EXPECT_GT(Predict(64, absl::ZeroDuration()), 0.99 * link);
  EXPECT_LE(Predict(64, absl::ZeroDuration()), link);
  EXPECT_EQ(Predict(64, -absl::Seconds(1)), Predict(64, absl::ZeroDuration()));
}

TEST(TunnelLoopTest, OneWorkerIsAskedAgainWhenItHasResponded) {
  const double seconds = 0.0101 + static_cast<double>(WireBytes(SlowLink(), kResponseBytes)) * 8 / 100e6;
  EXPECT_NEAR(Predict(1, absl::Milliseconds(10)), 8.0 * kResponseBytes / seconds / kMbit, 1e-9);
}

TEST(TunnelLoopTest, MoreWorkersThanWindowsAddNothing) {
  EXPECT_LT(Predict(9, absl::Milliseconds(10)), Predict(10, absl::Milliseconds(10)));
  EXPECT_EQ(Predict(10, absl::Milliseconds(10)), Predict(1000, absl::Milliseconds(10)));
}

TEST(TunnelLoopTest, ABufferBelowOneWindowHasOne) {
  LinkProfile tiny = SlowLink();
  tiny.buffer_bytes = 1;
  EXPECT_EQ(PredictTunnelGoodputBps(tiny, kResponseBytes, 64, absl::Milliseconds(10)),
            PredictTunnelGoodputBps(SlowLink(), kResponseBytes, 1, absl::Milliseconds(10)));
}

}  // namespace
}  // namespace sluice
