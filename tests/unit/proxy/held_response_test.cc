#include "lib/proxy/held_response.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::seconds;

class HeldResponseTest : public ::testing::Test {
 protected:
  HeldResponseTest() { held_.SetBound(int64_t{1} << 20, 16); }

  const TimePoint now_{std::chrono::hours(1)};
  HeldBytes held_;
  HeldResponse response_{held_, 0, 256 << 10, [] {}};
};

TEST_F(HeldResponseTest, ItsRoomIsAShareOnceAllHoldTooMuch) {
  EXPECT_EQ(response_.WantedBytes(0), 256 << 10);
  EXPECT_EQ(response_.WantedBytes(200 << 10), 56 << 10);
  EXPECT_EQ(response_.WantedBytes(300 << 10), 0);
  HeldResponse other(held_, 0, 256 << 10, [] {});
  other.CountAsked((1 << 20) + 1);
  EXPECT_EQ(response_.WantedBytes(0), 64 << 10);
  other.CountAsked(0);
  EXPECT_EQ(response_.WantedBytes(0), 256 << 10);
}

TEST_F(HeldResponseTest, WaitingBytesLeaveRoomForTheRestOfTheirMessage) {
  EXPECT_TRUE(response_.MayWaitForMore((16 << 10) - 1));
  EXPECT_FALSE(response_.MayWaitForMore(16 << 10)) << "enough for the client to be worth a wake-up";
  HeldResponse small(held_, 0, 8 << 10, [] {});
  EXPECT_TRUE(small.MayWaitForMore((4 << 10) - 1));
  EXPECT_FALSE(small.MayWaitForMore(4 << 10)) << "the other half of the room";
}

TEST_F(HeldResponseTest, AClientIsStuckWhileItsBytesDoNotBecomeFewer) {
  EXPECT_EQ(response_.stuck_since(), TimePoint::max());
  response_.CountUnsent(1000, now_);
  EXPECT_EQ(response_.stuck_since(), now_);
  response_.CountUnsent(2000, now_ + seconds(1));
  EXPECT_EQ(response_.stuck_since(), now_) << "more came, and nothing was read";
  response_.CountUnsent(1500, now_ + seconds(2));
  EXPECT_EQ(response_.stuck_since(), now_ + seconds(2));
  EXPECT_EQ(held_.bytes(), 1500);
  response_.CountUnsent(0, now_ + seconds(3));
  EXPECT_EQ(response_.stuck_since(), TimePoint::max());
  EXPECT_EQ(held_.bytes(), 0);
}

}  // namespace
}  // namespace sluice
