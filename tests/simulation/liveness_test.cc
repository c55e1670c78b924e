#include "tests/simulation/liveness.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simulation/faults.h"

// Tests that the simulation finds responses that wait too long, and only these.
namespace sluice::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr milliseconds kStall(300);
constexpr milliseconds kRound(1);
constexpr milliseconds kLongLap(10);
// A time between the bound with slow workers and the bound without them.
constexpr milliseconds kLong(200);

class LivenessTest : public ::testing::Test {
 protected:
  static Liveness::Bounds WithSlowWorkers() {
    return {.stall_time = kStall, .round = kRound, .long_lap = kLongLap, .part_bytes = 10'000};
  }
  static Liveness::Bounds WithoutSlowWorkers() { return {.stall_time = kStall, .round = kRound}; }

  void Pass(TimePoint::duration pause) {
    events_.After(pause, [] {});
    const TimePoint end = events_.now() + pause;
    while (events_.Step(end)) {
    }
  }
  // A worker sends a full packet, which takes the port 1.5 ms.
  void Send(bool slow) {
    port_.Send({.bytes = 1500, .slow = slow}, [] {});
  }

  EventQueue events_;
  Dice dice_{1};
  FaultCounts faults_;
  SimulatedPort port_{events_, dice_, faults_, 1e6, 1 << 20, 0};
  WireOracle oracle_{{}, 30'000, 2};
  SimulatedProcess process_{events_};
  SimulatedUplink uplink_{events_};
  const Liveness::Sender healthy_{0, process_, uplink_, false};
  const Liveness::Sender slow_{1, process_, uplink_, true};
};

TEST_F(LivenessTest, AResponseMayWaitForAStallTimeout) {
  Liveness liveness(events_, port_, oracle_, WithoutSlowWorkers());
  liveness.Ready(TimePoint::max(), false, healthy_);
  Pass(kLong);
  liveness.CheckAll();
  EXPECT_THAT(liveness.TakeBreaches(), IsEmpty());
  Pass(kStall);
  liveness.CheckAll();
  EXPECT_THAT(liveness.TakeBreaches(), ElementsAre(HasSubstr("has waited for 500 ms")));
}

TEST_F(LivenessTest, SlowWorkersHoldUpAHealthyOneForTwoLongLaps) {
  Liveness liveness(events_, port_, oracle_, WithSlowWorkers());
  liveness.Ready(TimePoint::max(), false, slow_);
  const Liveness::Id healthy = liveness.Ready(TimePoint::max(), false, healthy_);
  Pass(2 * kLongLap);
  liveness.CheckAll();
  EXPECT_THAT(liveness.TakeBreaches(), IsEmpty());
  Pass(kLong);
  liveness.Left(healthy);
  EXPECT_THAT(liveness.TakeBreaches(), ElementsAre(HasSubstr("has waited for 220 ms")));
  liveness.CheckAll();
  EXPECT_THAT(liveness.TakeBreaches(), IsEmpty()) << "the slow worker waits for its own link";
}

TEST_F(LivenessTest, EachPartOfAResponseMayWaitForTwoLongLaps) {
  Liveness liveness(events_, port_, oracle_, WithSlowWorkers());
  const Liveness::Id large = liveness.Ready(TimePoint::max(), false, healthy_, 100'000);
  Pass(kLong);
  liveness.Left(large);
  EXPECT_THAT(liveness.TakeBreaches(), IsEmpty());
  const Liveness::Id small = liveness.Ready(TimePoint::max(), false, healthy_, 9'999);
  Pass(kLong);
  liveness.Left(small);
  EXPECT_THAT(liveness.TakeBreaches(), ElementsAre(HasSubstr("has waited for 200 ms")));
}

TEST_F(LivenessTest, EachThirdOfTheBudgetOfSlowWorkersMayTakeALongLap) {
  Liveness liveness(events_, port_, oracle_, WithSlowWorkers());
  const Liveness::Id first = liveness.Ready(TimePoint::max(), false, healthy_);
  for (int i = 0; i < 80; ++i) {
    Send(/*slow=*/true);
    Pass(kLong / 80);
  }
  liveness.Left(first);
  EXPECT_THAT(liveness.TakeBreaches(), IsEmpty()) << "twelve thirds";
  liveness.Ready(TimePoint::max(), false, healthy_);
  for (int i = 0; i < 20; ++i) {
    Send(/*slow=*/true);
    Pass(kLong / 10);
  }
  liveness.CheckAll();
  EXPECT_THAT(liveness.TakeBreaches(), ElementsAre(HasSubstr("has waited for 400 ms"))) << "three thirds";
}

TEST_F(LivenessTest, AResponseMayWaitForAThirdOfWhatWorkersThinkMeanwhile) {
  Liveness liveness(events_, port_, oracle_, WithoutSlowWorkers());
  liveness.Thinks(std::chrono::seconds(9));  // before
  liveness.Ready(TimePoint::max(), false, healthy_);
  liveness.Thinks(3 * kLong);
  Pass(kStall + kLong);
  liveness.CheckAll();
  EXPECT_THAT(liveness.TakeBreaches(), IsEmpty());
  Pass(kLong);
  liveness.CheckAll();
  EXPECT_THAT(liveness.TakeBreaches(), ElementsAre(HasSubstr("has waited for 700 ms")));
}

TEST_F(LivenessTest, EachPartOfAHealthyWorkerTakesARound) {
  Liveness liveness(events_, port_, oracle_, WithSlowWorkers());
  liveness.Ready(TimePoint::max(), false, healthy_);
  for (int i = 0; i < 200; ++i) {
    Send(/*slow=*/false);
    Pass(milliseconds(2));
  }
  liveness.CheckAll();
  EXPECT_THAT(liveness.TakeBreaches(), IsEmpty());
}

TEST_F(LivenessTest, APacketThatIsMissingMayHoldUpAResponse) {
  Liveness liveness(events_, port_, oracle_, WithSlowWorkers());
  EXPECT_FALSE(port_.Send({.bytes = 2 << 20}, [] {}));
  liveness.Ready(TimePoint::max(), false, healthy_);
  Pass(kLong);
  port_.Repeat();
  liveness.CheckAll();
  EXPECT_THAT(liveness.TakeBreaches(), IsEmpty());
}

TEST_F(LivenessTest, APacketThatWasRepeatedHoldsUpNoLaterResponse) {
  Liveness liveness(events_, port_, oracle_, WithSlowWorkers());
  EXPECT_FALSE(port_.Send({.bytes = 2 << 20}, [] {}));
  port_.Repeat();
  liveness.Ready(TimePoint::max(), false, healthy_);
  Pass(kLong);
  liveness.CheckAll();
  EXPECT_THAT(liveness.TakeBreaches(), ElementsAre(HasSubstr("has waited for 200 ms")));
}

TEST_F(LivenessTest, APausedProcessHoldsUpItsOwnResponses) {
  Liveness liveness(events_, port_, oracle_, WithoutSlowWorkers());
  liveness.Ready(TimePoint::max(), false, healthy_);
  process_.Stop(2 * kStall, [] {});
  Pass(2 * kStall + kLong);
  liveness.CheckAll();
  EXPECT_THAT(liveness.TakeBreaches(), IsEmpty());
}

TEST_F(LivenessTest, TheApplicationHoldsUpStreams) {
  Liveness liveness(events_, port_, oracle_, WithoutSlowWorkers());
  liveness.SetReadingTime([this] { return events_.now().time_since_epoch(); });
  liveness.Ready(TimePoint::max(), /*streaming=*/true, healthy_);
  Pass(2 * kStall);
  liveness.CheckAll();
  EXPECT_THAT(liveness.TakeBreaches(), IsEmpty());
  liveness.Ready(TimePoint::max(), /*streaming=*/false, healthy_);
  Pass(2 * kStall);
  liveness.CheckAll();
  EXPECT_THAT(liveness.TakeBreaches(), ElementsAre(HasSubstr("has waited for 600 ms")));
}

TEST_F(LivenessTest, AResponseThatIsGivenUpWaitsNoLonger) {
  Liveness liveness(events_, port_, oracle_, WithoutSlowWorkers());
  liveness.Ready(events_.now() + kLong, false, healthy_);
  Pass(2 * kStall);
  liveness.CheckAll();
  EXPECT_THAT(liveness.TakeBreaches(), IsEmpty());
}

}  // namespace
}  // namespace sluice::testing
