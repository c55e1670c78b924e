#include "lib/link/method_history.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(MethodHistoryTest, KnowsNothingAtFirst) {
  MethodHistory history;
  EXPECT_FALSE(history.ResponseBytes().has_value());
  EXPECT_FALSE(history.Latency(0.5).has_value());
}

TEST(MethodHistoryTest, AResponseOfUnknownSizeTakesAThirdOfTheBuffer) {
  LinkProfile profile;
  profile.buffer_bytes = 30'000;
  EXPECT_EQ(MethodHistory::FirstResponseBytes(profile), 10'000);
  profile.buffer_bytes = 0;
  profile.buffer_packets = 30;
  profile.frame_bytes = 1000;
  EXPECT_EQ(MethodHistory::FirstResponseBytes(profile), 10'000) << "the buffer counts packets";
}

TEST(MethodHistoryTest, MostAnswersAreNoLargerThanItsSize) {
  MethodHistory history;
  for (int i = 0; i < 96; ++i) history.ObserveResponse(i < 3 ? 1'000'000 : 2'000);
  EXPECT_EQ(history.ResponseBytes(), 2'000) << "one large answer in thirty does not count for all";
  for (int i = 0; i < 96; ++i) history.ObserveResponse(1'000'000);
  EXPECT_EQ(history.ResponseBytes(), 1'000'000);
}

TEST(MethodHistoryTest, KeepsTimesFromTheFirstQuestionOn) {
  MethodHistory history;
  for (int i = 0; i < 32; ++i) history.ObserveLatency(absl::Seconds(1));
  EXPECT_FALSE(history.Latency(0.5).has_value());
  for (int i = 1; i <= 32; ++i) history.ObserveLatency(absl::Milliseconds(i));
  EXPECT_EQ(absl::ToInt64Microseconds(*history.Latency(0.5) + absl::Nanoseconds(1)), 17'000);
  EXPECT_FALSE(history.Latency(0.9).has_value()) << "another quantile";
}

TEST(MethodHistoryTest, QuantilesAreKeptApart) {
  MethodHistory history;
  EXPECT_FALSE(history.Latency(0.25).has_value());
  EXPECT_FALSE(history.Latency(0.75).has_value());
  for (int i = 0; i < 32; ++i) history.ObserveLatency(absl::Milliseconds(i));
  EXPECT_LT(*history.Latency(0.25), absl::Milliseconds(9));
  EXPECT_GT(*history.Latency(0.75), absl::Milliseconds(23));
}

}  // namespace
}  // namespace sluice
