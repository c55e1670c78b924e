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
  link.Submit(At(0ms), {1000});
  link.Ready(At(5ms), 0, 1000);
  link.Finish(At(6ms), 0);
  const int64_t window = link.state().grant_window;
  options.profile.capacity_bytes_per_second *= 4;
  link.Reconfigure(At(6ms), options);
  EXPECT_GT(link.state().grant_window, window) << "a faster link takes more answers in the time that workers think";
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
  EXPECT_THAT(refused(OptionsWith(SchedulePolicy::kRolling)),
              HasSubstr("policy: rolling cannot take the place of grants"));
  options = GrantsOptions();
  options.stall_timeout += absl::Seconds(1);
  EXPECT_THAT(refused(options), HasSubstr("stall_timeout"));
  EXPECT_EQ(link.schedule().options().profile, GrantsOptions().profile);
}

}  // namespace
}  // namespace sluice
