#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/schedule_driver.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ReconfigureTest, NewCallsCostWhatTheyDoOnTheNewLinkAndOldOnesGiveBackWhatTheyTook) {
  ScheduleOptions options = OptionsWith(SchedulePolicy::kRolling);
  ScheduleDriver link(options);
  link.Submit(At(0ms), {4000});
  EXPECT_EQ(link.state().in_flight_bytes, 4000);
  options.profile.frame_bytes = 2 * options.profile.packet_payload_bytes;
  EXPECT_THAT(link.Reconfigure(At(1ms), options), IsEmpty());
  EXPECT_EQ(link.schedule().options().profile, options.profile);
  EXPECT_EQ(link.state().in_flight_bytes, 4000);
  link.Submit(At(2ms), {1000});
  EXPECT_EQ(link.state().in_flight_bytes, 4000 + 2000);
  link.Finish(At(3ms), 0);
  EXPECT_EQ(link.state().in_flight_bytes, 2000);
  link.Finish(At(3ms), 1);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(ReconfigureTest, TheBudgetStays) {
  ScheduleOptions options = OptionsWith(SchedulePolicy::kRolling);
  ScheduleDriver link(options);
  const int64_t before = link.state().budget_bytes;
  options.profile.buffer_bytes *= 2;
  options.budget_bytes = 1;
  link.Reconfigure(At(0ms), options);
  EXPECT_EQ(link.state().budget_bytes, before);
}

TEST(ReconfigureTest, AbortedCallsDrainForAsLongAsTheNewLinkTakes) {
  ScheduleOptions options = OptionsWith(SchedulePolicy::kRolling);
  ScheduleDriver link(options);
  link.Submit(At(0ms), {4000, 4000});
  link.CancelCall(At(0ms), 0);
  link.Finish(At(0ms), 0, CallEnd::kAborted);
  options.profile.capacity_bytes_per_second /= 2;
  link.Reconfigure(At(1ms), options);
  EXPECT_EQ(link.next_timer(), At(kDrainTime)) << "of the old link";
  link.CancelCall(At(1ms), 1);
  link.Finish(At(1ms), 1, CallEnd::kAborted);
  link.Timer(At(kDrainTime));
  EXPECT_EQ(link.state().in_flight_bytes, 4000);
  EXPECT_EQ(link.next_timer(), At(1ms + kDrainTime + 10ms));
  link.Timer(At(1ms + kDrainTime + 10ms));
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(ReconfigureTest, AShorterDrainWaitsForTheOnesBeforeIt) {
  ScheduleOptions options = OptionsWith(SchedulePolicy::kRolling);
  ScheduleDriver link(options);
  link.Submit(At(0ms), {4000, 4000});
  link.CancelCall(At(0ms), 0);
  link.Finish(At(0ms), 0, CallEnd::kAborted);
  options.profile.capacity_bytes_per_second *= 10;
  link.Reconfigure(At(0ms), options);
  link.CancelCall(At(0ms), 1);
  link.Finish(At(0ms), 1, CallEnd::kAborted);
  link.Timer(At(kDrainTime));
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(ReconfigureTest, ALongerQueueTakesWhatTheShorterRefused) {
  ScheduleOptions options = OptionsWith(SchedulePolicy::kRolling);
  options.queue_limit = 2;
  ScheduleDriver link(options);
  std::vector<Action> actions;
  const std::vector<CallRequest> calls(3, CallRequest{.response_bytes = 10'000});
  EXPECT_FALSE(link.schedule().Submit(At(0ms), calls, TimePoint::max(), actions).ok());
  options.queue_limit = 3;
  link.Reconfigure(At(0ms), options);
  EXPECT_TRUE(link.schedule().Submit(At(0ms), calls, TimePoint::max(), actions).ok());
}

TEST(ReconfigureTest, AllThatGrantsKnowOfWorkersStays) {
  ScheduleOptions options = GrantsOptions();
  ScheduleDriver link(options);
  link.Submit(At(0ms), {9000});
  link.Ready(At(5ms), 0, 1000);
  link.Finish(At(6ms), 0);
  options.profile.frame_bytes = 1100;
  link.Reconfigure(At(6ms), options);
  EXPECT_THAT(link.Submit(At(7ms), {900, 9000}), ElementsAre("send 1 900", "send 2")) << "workers are ready at once";
}

TEST(ReconfigureTest, AScheduleThatIsSwitchedOnWaitsForWhatLeftBefore) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kUnscheduled));
  link.Submit(At(0ms), {10'000, 10'000, 10'000});
  EXPECT_EQ(link.state().in_flight_bytes, 30'000);
  link.Reconfigure(At(1ms), OptionsWith(SchedulePolicy::kRolling));
  EXPECT_EQ(link.state().in_flight_bytes, 30'000);
  EXPECT_LT(link.state().budget_bytes, 30'000);
  EXPECT_THAT(link.Submit(At(1ms), {1000}), IsEmpty());
  link.Ready(At(2ms), 0, 12'000);
  EXPECT_EQ(link.state().in_flight_bytes, 32'000) << "of a message that is larger than expected";
  for (uint64_t tag = 0; tag < 2; ++tag) EXPECT_THAT(link.Finish(At(3ms), tag), IsEmpty());
  EXPECT_EQ(link.Finish(At(3ms), 2).size(), 1);
  link.Finish(At(4ms), 3);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(ReconfigureTest, ALostCallOfTheTimeBeforeStalls) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kUnscheduled));
  link.Submit(At(0ms), {10'000});
  EXPECT_EQ(link.next_timer(), TimePoint::max());
  link.Reconfigure(At(1ms), OptionsWith(SchedulePolicy::kRolling));
  ASSERT_LT(link.next_timer(), TimePoint::max());
  link.Timer(link.next_timer());
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(ReconfigureTest, ACallAbortedWhileSwitchedOffDrainsFromTheBudgetThatComes) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kRolling));
  link.Submit(At(0ms), {10'000});
  link.Reconfigure(At(1ms), OptionsWith(SchedulePolicy::kUnscheduled));
  link.CancelCall(At(1ms), 0);
  link.Finish(At(1ms), 0, CallEnd::kAborted);
  link.Reconfigure(At(1ms), OptionsWith(SchedulePolicy::kRolling));
  EXPECT_EQ(link.state().in_flight_bytes, 10'000) << "its bytes may still arrive";
  link.Timer(At(1ms + kDrainTime));
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(ReconfigureTest, AScheduleThatIsSwitchedOffLetsEverythingGo) {
  ScheduleDriver link(GrantsOptions());
  std::vector<int64_t> sizes(100, 1000);
  link.Submit(At(0ms), sizes);
  EXPECT_GT(link.state().waiting_calls, 0);
  const int64_t ungranted = link.state().ungranted_calls;
  EXPECT_GT(ungranted, 0);
  ScheduleOptions options = GrantsOptions();
  options.policy = SchedulePolicy::kUnscheduled;
  link.Reconfigure(At(1ms), options);
  EXPECT_EQ(link.state().waiting_calls, 0);
  EXPECT_EQ(link.state().ungranted_calls, 0);
  EXPECT_EQ(link.state().in_flight_calls, 100);
}

ScheduleOptions BatchesOfThree() {
  ScheduleOptions options = OptionsWith(SchedulePolicy::kBatches);
  options.budget_bytes = 3 * options.profile.frame_bytes;
  return options;
}

TEST(ReconfigureTest, CallsThatWaitAreDealtIntoBatches) {
  ScheduleOptions options = BatchesOfThree();
  options.policy = SchedulePolicy::kRolling;
  ScheduleDriver link(options);
  const std::vector<int64_t> sizes(7, options.profile.packet_payload_bytes);
  EXPECT_THAT(link.Submit(At(0ms), sizes), ElementsAre("send 0", "send 1", "send 2"));
  EXPECT_THAT(link.Reconfigure(At(1ms), BatchesOfThree()), IsEmpty()) << "the budget is full";
  EXPECT_THAT(link.Finish(At(2ms), 0), ElementsAre("send 3"));
  EXPECT_THAT(link.Finish(At(2ms), 1), ElementsAre("send 4"));
  EXPECT_THAT(link.Finish(At(2ms), 2), IsEmpty()) << "the next two are of another batch";
  ASSERT_LT(link.next_timer(), TimePoint::max());
  EXPECT_THAT(link.Finish(At(3ms), 3), IsEmpty());
  EXPECT_THAT(link.Timer(link.next_timer()), ElementsAre("send 5", "send 6"));
}

TEST(ReconfigureTest, CallsThatWaitForTheirSlotWaitForRoomInstead) {
  const std::vector<int64_t> sizes(7, BatchesOfThree().profile.packet_payload_bytes);
  for (const SchedulePolicy policy : {SchedulePolicy::kRolling, SchedulePolicy::kUnscheduled}) {
    ScheduleDriver link(BatchesOfThree());
    EXPECT_EQ(link.Submit(At(0ms), sizes).size(), 3);
    EXPECT_THAT(link.Finish(At(1ms), 0), IsEmpty());
    ScheduleOptions options = BatchesOfThree();
    options.policy = policy;
    EXPECT_EQ(link.Reconfigure(At(2ms), options).size(), policy == SchedulePolicy::kRolling ? 1 : 4);
    options.policy = SchedulePolicy::kBatches;
    EXPECT_THAT(link.Reconfigure(At(3ms), options), IsEmpty());
  }
}

TEST(ReconfigureTest, RefusesWhatIsOutOfBoundsOrCannotChange) {
  ScheduleDriver link(GrantsOptions());
  const auto refused = [&](const ScheduleOptions& options) {
    std::vector<Action> actions;
    const absl::Status status = link.schedule().Reconfigure(At(0ms), options, actions);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(actions, IsEmpty());
    return std::string(status.message());
  };
  ScheduleOptions options = GrantsOptions();
  options.profile.capacity_bytes_per_second = 0;
  EXPECT_THAT(refused(options), HasSubstr("capacity"));
  options = GrantsOptions();
  options.stall_timeout += absl::Seconds(1);
  EXPECT_THAT(refused(options), HasSubstr("stall_timeout"));
  EXPECT_EQ(link.schedule().options().profile, GrantsOptions().profile);
}

}  // namespace
}  // namespace sluice
