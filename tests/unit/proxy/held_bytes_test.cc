#include "lib/proxy/held_bytes.h"

#include <chrono>
#include <string>

#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::seconds;

// Three holders with a bound of 12 KiB. The share of each is 4 KiB.
class HeldBytesTest : public ::testing::Test {
 protected:
  HeldBytesTest() { held_.SetBound(12 << 10, 3); }
  static TimePoint At(int64_t second) { return TimePoint(seconds(second)); }

  HeldBytes held_;
  std::string released_;  // the names of released holders, in the order of their release
  HeldBytes::Holder a_{[this] { released_ += 'a'; }};
  HeldBytes::Holder b_{[this] { released_ += 'b'; }};
  HeldBytes::Holder c_{[this] {
    released_ += 'c';
    held_.Count(c_, 0, At(9));
  }};
};

TEST_F(HeldBytesTest, CountsWhatAllHold) {
  held_.Count(a_, 5000, At(1));
  held_.Count(b_, 7000, At(1));
  EXPECT_EQ(held_.bytes(), 12'000);
  EXPECT_FALSE(held_.full());
  held_.Count(b_, 8000, At(2));
  EXPECT_TRUE(held_.full());
  held_.Count(a_, 0, At(3));
  EXPECT_EQ(held_.bytes(), 8000);
  EXPECT_FALSE(held_.full());
}

TEST_F(HeldBytesTest, IsFullOfWhatWasAskedForAsWell) {
  held_.Count(a_, 10'000, At(1));
  held_.CountAsked(0, 3000);
  EXPECT_TRUE(held_.full());
  EXPECT_EQ(held_.bytes(), 10'000);
  held_.CountAsked(0, -2000);
  EXPECT_FALSE(held_.full());
}

TEST_F(HeldBytesTest, ReleasesTheOneThatHasNotBecomeLessForTheLongestTime) {
  held_.Count(a_, 6000, At(1));
  held_.Count(b_, 6000, At(2));
  held_.Count(c_, 6000, At(3));
  held_.Count(a_, 5900, At(4));
  held_.Count(b_, 6100, At(5));  // an increase does not count as a decrease
  held_.ReleaseStuck(At(5));
  EXPECT_EQ(released_, "bc");  // b keeps its bytes
  EXPECT_FALSE(held_.full());
}

TEST_F(HeldBytesTest, SparesWhoHasBecomeLessSince) {
  held_.Count(a_, 7000, At(1));
  held_.Count(b_, 7000, At(3));
  held_.ReleaseStuck(At(2));
  EXPECT_EQ(released_, "a");
  EXPECT_TRUE(held_.full());
}

TEST_F(HeldBytesTest, AboveABoundItSparesNobodyButStopsThere) {
  held_.Count(c_, 6000, At(1));
  held_.Count(a_, 7000, At(2));
  held_.CountAsked(0, 1 << 20);
  held_.ReleaseAbove(7000);
  EXPECT_EQ(released_, "c");
  held_.ReleaseAbove(6999);
  EXPECT_EQ(released_, "ca");
}

TEST_F(HeldBytesTest, SparesWhoHoldsNoMoreThanItsShare) {
  held_.Count(a_, 4096, At(1));
  held_.Count(b_, 4097, At(1));
  held_.CountAsked(0, 1 << 20);
  held_.ReleaseStuck(At(2));
  EXPECT_EQ(released_, "b");
}

TEST_F(HeldBytesTest, ReleasesNobodyWithinTheBound) {
  held_.Count(a_, 12 << 10, At(1));
  held_.ReleaseStuck(At(2));
  EXPECT_EQ(released_, "");
}

TEST_F(HeldBytesTest, AShareIsAKibibyteAtLeast) {
  held_.SetBound(12 << 10, 1 << 20);
  EXPECT_EQ(held_.share_bytes(), 1024);
}

TEST_F(HeldBytesTest, TheGroupWithTheMostIsReleasedFirst) {
  HeldBytes::Holder modest([this] { released_ += 'm'; }, 1);
  held_.Count(modest, 5000, At(1));
  held_.Count(c_, 9000, At(2));
  EXPECT_TRUE(held_.full());
  EXPECT_TRUE(held_.full(0));
  EXPECT_FALSE(held_.full(1)) << "it has less than the other group";
  held_.ReleaseStuck(At(3));
  EXPECT_EQ(released_, "c");
  EXPECT_FALSE(held_.full(0));
}

TEST_F(HeldBytesTest, AGroupHasABoundOfItsOwn) {
  held_.SetGroup(1, 1, 5000);
  HeldBytes::Holder capped([this] { released_ += 'm'; }, 1);
  held_.Count(c_, 6000, At(1));
  held_.Count(capped, 5500, At(2));
  EXPECT_TRUE(held_.full());
  EXPECT_TRUE(held_.full(1));
  EXPECT_FALSE(held_.full(0));
  held_.ReleaseStuck(At(3));
  EXPECT_EQ(released_, "m") << "the other group has more, and no bound";
  held_.SetGroup(1, 1, FairShares::kNoCap);
  EXPECT_FALSE(held_.full());
}

TEST_F(HeldBytesTest, AHolderMayChangeItsGroup) {
  held_.Count(a_, 5000, At(1));
  held_.Move(a_, 3, At(1));
  EXPECT_EQ(held_.bytes_of(0), 0);
  EXPECT_EQ(held_.bytes_of(3), 5000);
  EXPECT_EQ(held_.bytes(), 5000);
}

TEST_F(HeldBytesTest, AHolderMayGo) {
  {
    HeldBytes::Holder gone([this] { released_ += 'g'; });
    held_.Count(gone, 20'000, At(1));
    held_.Count(gone, 0, At(1));
  }
  held_.Count(a_, 20'000, At(1));
  held_.ReleaseStuck(At(2));
  EXPECT_EQ(released_, "a");
}

}  // namespace
}  // namespace sluice
