#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/has_code.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/schedule_driver.h"

// Tests the turns of byte tunnels: that their windows fit the budget beside each other and beside calls.
namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using sluice::testing::HasCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Values;

constexpr int64_t kWindow = 3000;

// Three windows fit the budget of 10,000 bytes.
class TunnelTurnTest : public ::testing::TestWithParam<SchedulePolicy> {
 protected:
  ScheduleDriver link_{OptionsWith(GetParam())};
};

TEST_P(TunnelTurnTest, TheWindowIsGrantedAtOnceWhileItFits) {
  EXPECT_THAT(link_.AskForTurn(At(0ms), kWindow), ElementsAre("grant 0 3000"));
  EXPECT_THAT(link_.AskForTurn(At(0ms), kWindow), ElementsAre("grant 1 3000"));
  EXPECT_THAT(link_.AskForTurn(At(0ms), kWindow), ElementsAre("grant 2 3000"));
  EXPECT_THAT(link_.AskForTurn(At(0ms), kWindow), IsEmpty());
  EXPECT_EQ(link_.state().in_flight_bytes, 9000);
}

TEST_P(TunnelTurnTest, TheWindowStaysChargedWhileItSlides) {
  link_.AskForTurn(At(0ms), kWindow);
  for (int i = 1; i <= 10; ++i) {
    EXPECT_THAT(link_.Receive(At(i * 1ms), 0, 2000), IsEmpty());
    EXPECT_EQ(link_.state().in_flight_bytes, kWindow);
  }
  link_.Finish(At(11ms), 0);
  EXPECT_EQ(link_.state().in_flight_bytes, 0);
}

TEST_P(TunnelTurnTest, TheEndOfATurnLetsTheNextBegin) {
  for (int i = 0; i < 5; ++i) link_.AskForTurn(At(0ms), kWindow);
  EXPECT_THAT(link_.Finish(At(1ms), 1), ElementsAre("grant 3 3000"));
  // Bytes of this one may still be on their way, until a full port has drained.
  EXPECT_THAT(link_.Finish(At(2ms), 0, CallEnd::kAborted), IsEmpty());
  EXPECT_THAT(link_.Timer(At(2ms + kDrainTime)), ElementsAre("grant 4 3000"));
}

TEST_P(TunnelTurnTest, ATurnThatWaitsEndsWithoutAWindow) {
  for (int i = 0; i < 5; ++i) link_.AskForTurn(At(0ms), kWindow);
  EXPECT_THAT(link_.Finish(At(1ms), 3), IsEmpty());
  EXPECT_THAT(link_.Finish(At(1ms), 0), ElementsAre("grant 4 3000"));
}

TEST_P(TunnelTurnTest, AWindowLargerThanTheBudgetIsAlone) {
  EXPECT_THAT(link_.AskForTurn(At(0ms), 20'000), ElementsAre("grant 0 20000"));
  EXPECT_THAT(link_.AskForTurn(At(0ms), kWindow), IsEmpty());
  EXPECT_THAT(link_.Finish(At(1ms), 0), ElementsAre("grant 1 3000"));
}

TEST_P(TunnelTurnTest, AWindowThatIsNotUsedStalls) {
  for (int i = 0; i < 4; ++i) link_.AskForTurn(At(0ms), kWindow);
  EXPECT_THAT(link_.Timer(At(kStallTime)), ElementsAre("stall 0", "stall 1", "stall 2", "grant 3 3000"));
}

TEST_P(TunnelTurnTest, AWiderWindowIsGrantedInAddition) {
  link_.AskForTurn(At(0ms), kWindow);
  EXPECT_THAT(link_.Ready(At(1ms), 0, kWindow + 2000), ElementsAre("grant 0 2000"));
  EXPECT_EQ(link_.state().in_flight_bytes, 5000);
  link_.Receive(At(2ms), 0, 4000);
  EXPECT_EQ(link_.state().in_flight_bytes, 5000);
}

TEST_P(TunnelTurnTest, TurnsAndCallsShareTheBudget) {
  link_.AskForTurn(At(0ms), kWindow);
  link_.AskForTurn(At(0ms), kWindow);
  link_.Submit(At(0ms), {5000});
  EXPECT_EQ(link_.state().in_flight_bytes, 6000);
  EXPECT_EQ(link_.state().in_flight_calls + link_.state().ungranted_calls + link_.state().waiting_calls, 3);
}

TEST_P(TunnelTurnTest, ATurnDoesNotTakeAPlaceInTheQueue) {
  ScheduleOptions options = OptionsWith(GetParam());
  options.queue_limit = 1;
  ScheduleDriver link(options);
  link.SubmitParked(At(0ms), 1000);
  EXPECT_THAT(link.AskForTurn(At(0ms), kWindow), ElementsAre("grant 1 3000"));
}

INSTANTIATE_TEST_SUITE_P(, TunnelTurnTest, Values(SchedulePolicy::kGrants, SchedulePolicy::kRolling),
                         [](const auto& info) { return std::string(SchedulePolicyName(info.param)); });

TEST(TunnelTurnRankTest, ATurnThatExpectsLessComesFirst) {
  ScheduleOptions options = GrantsOptions();
  options.shortest_first = true;
  ScheduleDriver link(options);
  for (int i = 0; i < 3; ++i) link.AskForTurn(At(0ms), kWindow);
  link.AskForTurn(At(0ms), kWindow, 1 << 20);
  link.AskForTurn(At(0ms), kWindow);
  EXPECT_THAT(link.Finish(At(1ms), 0), ElementsAre("grant 4 3000"));
  EXPECT_THAT(link.Finish(At(1ms), 1), ElementsAre("grant 3 3000"));
}

// The class of the turn is charged for all that slides, so the class of the calls catches up.
TEST(TunnelTurnClassTest, BytesThatSlideCountForTheClass) {
  ScheduleOptions options = GrantsOptions();
  options.classes = {{.name = "tunnels", .weight = 1}, {.name = "calls", .weight = 1}};
  ScheduleDriver link(options);
  link.AskForTurn(At(0ms), kWindow);
  link.set_traffic_class(1);
  link.AskForTurn(At(0ms), kWindow);
  link.AskForTurn(At(0ms), kWindow);
  link.AskForTurn(At(0ms), kWindow);
  link.set_traffic_class(0);
  link.AskForTurn(At(0ms), kWindow);
  for (int i = 0; i < 4; ++i) link.Receive(At(1ms), 0, kWindow);
  EXPECT_EQ(link.schedule().ClassState(0).received_bytes, 4 * kWindow);
  EXPECT_THAT(link.Finish(At(2ms), 0), ElementsAre("grant 3 3000"));
  EXPECT_THAT(link.Finish(At(2ms), 1), ElementsAre("grant 4 3000"));
}

TEST(TunnelTurnCheckTest, AWindowOutOfBoundsIsRefused) {
  LinkSchedule schedule(GrantsOptions());
  std::vector<Action> actions;
  for (const int64_t window : {int64_t{-1}, int64_t{1001}}) {
    const absl::Status status =
        schedule.Submit(At(0ms), {{.response_bytes = 1000, .window_bytes = window}}, TimePoint::max(), actions)
            .status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(std::string(status.message()), HasSubstr("window_bytes: "));
  }
}

TEST(TunnelTurnCheckTest, PoliciesWithoutTurnsRefuseThem) {
  for (const SchedulePolicy policy : {SchedulePolicy::kBatches, SchedulePolicy::kUnscheduled}) {
    LinkSchedule schedule(OptionsWith(policy));
    std::vector<Action> actions;
    EXPECT_THAT(
        schedule.Submit(At(0ms), {{.response_bytes = 1000, .window_bytes = 1000}}, TimePoint::max(), actions).status(),
        HasCode(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace sluice
