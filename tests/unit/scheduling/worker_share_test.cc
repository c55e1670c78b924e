#include "lib/scheduling/worker_share.h"

#include <limits>

#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;

// A budget of 30 packets, and a lap that is long after 100 ms.
class WorkerShareTest : public ::testing::Test {
 protected:
  WorkerShare::Link link_{
      .now = TimePoint(std::chrono::seconds(1)), .plan_bytes = 30'000, .packet_bytes = 1000, .long_lap = 100ms};
  WorkerShare share_;

  // The worker delivers the bytes of a lap, while the link receives `link_bytes`.
  void Lap(int64_t owed_bytes, int64_t link_bytes, std::chrono::nanoseconds time = 1ms) {
    share_.OnOwed(link_, owed_bytes, 0);
    link_.received_bytes += link_bytes;
    link_.now += time;
    share_.OnOwed(link_, 0, owed_bytes);
  }
  int64_t Bytes() const { return share_.Bytes(link_); }
};

TEST_F(WorkerShareTest, BeginsAsOnePart) {
  EXPECT_EQ(Bytes(), 10'000);
  EXPECT_FALSE(share_.slow());
}

TEST_F(WorkerShareTest, GrowsUpToTheBudgetByLapsInTime) {
  Lap(10'000, 60'000);
  EXPECT_EQ(Bytes(), 12'500);
  for (int i = 0; i < 10; ++i) Lap(Bytes(), 60'000);
  EXPECT_EQ(Bytes(), 30'000);
}

TEST_F(WorkerShareTest, NoBudgetIsTooLarge) {
  link_.plan_bytes = std::numeric_limits<int64_t>::max();
  Lap(10'000, 60'000);
  EXPECT_FALSE(share_.slow());
}

TEST_F(WorkerShareTest, DoesNotGrowByLapsThatUseLittleOfIt) {
  Lap(4900, 4900);
  EXPECT_EQ(Bytes(), 10'000);
}

TEST_F(WorkerShareTest, IsHalvedWhenTwoBudgetsHaveOvertakenTheWorker) {
  Lap(10'000, 60'001);
  EXPECT_EQ(Bytes(), 5000);
  EXPECT_TRUE(share_.slow());
}

TEST_F(WorkerShareTest, IsHalvedWithinALapAndAgainAfterTwoMoreBudgets) {
  share_.OnOwed(link_, 10'000, 0);
  link_.received_bytes += 60'001;
  link_.now += 1ms;
  EXPECT_TRUE(share_.Look(link_, false));
  EXPECT_FALSE(share_.Look(link_, false));
  EXPECT_EQ(Bytes(), 5000);
  link_.received_bytes += 60'001;
  link_.now += 1ms;
  share_.OnOwed(link_, 9000, 1000);
  EXPECT_EQ(Bytes(), 2500);
}

TEST_F(WorkerShareTest, IsAPacketAtLeast) {
  for (int i = 0; i < 20; ++i) Lap(1000, 60'001);
  EXPECT_EQ(Bytes(), 1000);
  Lap(1000, 1000);
  EXPECT_EQ(Bytes(), 2000) << "it grows from there";
}

TEST_F(WorkerShareTest, KeepsItsPartOfABudgetThatChanges) {
  link_.plan_bytes = 300'000;
  EXPECT_EQ(Bytes(), 100'000);
  EXPECT_FALSE(share_.slow());
  link_.plan_bytes = 900;
  EXPECT_EQ(Bytes(), 1000) << "a packet";
}

TEST_F(WorkerShareTest, IsNotHalvedForAWorkerThatIsFar) {
  share_.OnReady(50ms);
  Lap(10'000, 1'000'000, 99ms);
  EXPECT_GE(Bytes(), 10'000);
  Lap(10'000, 1'000'000, 101ms);
  EXPECT_LT(Bytes(), 10'000);
}

TEST_F(WorkerShareTest, FollowsARouteThatHasBecomeLonger) {
  share_.OnReady(1ms);
  for (int i = 0; i < 500; ++i) share_.OnReady(50ms);
  Lap(10'000, 1'000'000, 95ms);
  EXPECT_GE(Bytes(), 10'000);
}

// If no call waits for the room, time alone proves nothing: to a process that was stopped, all laps look late.
TEST_F(WorkerShareTest, IsHalvedByTimeOnlyWhileOthersWaitForRoom) {
  share_.OnOwed(link_, 10'000, 0);
  link_.now += 99ms;
  EXPECT_FALSE(share_.IsLong(link_));
  EXPECT_FALSE(share_.Look(link_, true));
  link_.now += 1ms;
  EXPECT_FALSE(share_.Look(link_, false));
  EXPECT_EQ(Bytes(), 10'000);
  EXPECT_TRUE(share_.IsLong(link_));
  EXPECT_TRUE(share_.Look(link_, true));
  EXPECT_EQ(Bytes(), 5000);
}

TEST_F(WorkerShareTest, DoesNotGrowByLongLaps) {
  Lap(10'000, 10'000, 100ms);
  EXPECT_EQ(Bytes(), 10'000);
}

TEST_F(WorkerShareTest, IsAPacketAfterAStallAndGrowsAgain) {
  share_.OnStall(link_);
  EXPECT_EQ(Bytes(), 1000);
  EXPECT_TRUE(share_.slow());
  share_.OnStall(link_);
  EXPECT_EQ(Bytes(), 1000);
  Lap(1000, 60'000);
  EXPECT_EQ(Bytes(), 2000);
}

TEST_F(WorkerShareTest, TakesNoDeliveryFromCallsThatEnd) {
  share_.OnOwed(link_, 10'000, 0);
  link_.received_bytes += 1000;
  share_.OnOwed(link_, 0, 0);
  EXPECT_EQ(Bytes(), 10'000);
  EXPECT_FALSE(share_.owes());
}

TEST_F(WorkerShareTest, CountsWhatIsOwedLaterInTheNextLap) {
  EXPECT_TRUE(share_.OnOwed(link_, 6000, 0));
  EXPECT_FALSE(share_.OnOwed(link_, 9000, 0));
  EXPECT_TRUE(share_.OnOwed(link_, 3000, 6000)) << "the lap of 6000 is over, one of 3000 begins";
  EXPECT_EQ(Bytes(), 12'500);
}

}  // namespace
}  // namespace sluice
