#include "lib/proxy/unsent_watch.h"

#include <chrono>

#include "gtest/gtest.h"

namespace sluice {
namespace {

constexpr TimePoint At(int second) {
  return TimePoint(std::chrono::seconds(second));
}

TEST(UnsentWatchTest, NothingWaitsAtFirstNorWhenAllHasLeft) {
  UnsentWatch watch;
  EXPECT_EQ(watch.since(), TimePoint::max());
  watch.OnWritten(10);
  watch.Look(10, At(1));
  EXPECT_EQ(watch.since(), At(1));
  watch.Look(0, At(2));
  EXPECT_EQ(watch.since(), TimePoint::max());
}

TEST(UnsentWatchTest, WhatIsTakenBeginsItAnewAndWhatIsAddedDoesNot) {
  UnsentWatch watch;
  watch.OnWritten(10);
  watch.Look(10, At(1));
  watch.OnWritten(5);
  watch.Look(15, At(2));
  EXPECT_EQ(watch.since(), At(1));
  watch.Look(14, At(3));
  EXPECT_EQ(watch.since(), At(3));
  watch.OnWritten(20);
  watch.Look(34, At(4));
  EXPECT_EQ(watch.since(), At(3));
}

TEST(UnsentWatchTest, AsManyMayWaitThoughSomeWereTaken) {
  UnsentWatch watch;
  watch.OnWritten(10);
  watch.Look(10, At(1));
  watch.OnWritten(10);
  watch.Look(10, At(2));
  EXPECT_EQ(watch.since(), At(2));
}

}  // namespace
}  // namespace sluice
