#include "lib/link/recent_quantile.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(RecentQuantileTest, SaysNothingBeforeTheFirstFewValues) {
  RecentQuantile quantile(0.5);
  for (int i = 0; i < 7; ++i) {
    quantile.Observe(1);
    EXPECT_FALSE(quantile.value().has_value()) << i;
  }
  quantile.Observe(1);
  EXPECT_EQ(quantile.value(), 1);
}

TEST(RecentQuantileTest, SoManyValuesAreBelowIt) {
  RecentQuantile low(0.25);
  RecentQuantile high(0.95);
  for (int i = 0; i < 320; ++i) {  // unordered
    low.Observe((i * 7) % 320);
    high.Observe((i * 7) % 320);
  }
  EXPECT_EQ(low.value(), 80);
  EXPECT_EQ(high.value(), 304);
}

TEST(RecentQuantileTest, OfFewValuesAHighOneIsTheLargest) {
  RecentQuantile quantile(0.99);
  for (int i = 8; i > 0; --i) quantile.Observe(i);
  EXPECT_EQ(quantile.value(), 8);
}

TEST(RecentQuantileTest, ForgetsWhatIsOld) {
  RecentQuantile quantile(0.95);
  for (int i = 0; i < 2000; ++i) quantile.Observe(1000);
  for (int i = 0; i < 480; ++i) quantile.Observe(1);
  EXPECT_EQ(quantile.value(), 1000) << "still more than a twentieth of the last 512";
  for (int i = 0; i < 32; ++i) quantile.Observe(1);
  EXPECT_EQ(quantile.value(), 1);
}

}  // namespace
}  // namespace sluice
