#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/schedule_driver.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CancelCallTest, DropsACallThatWaitsAndTheBlockGoesOn) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kRolling));
  link.Submit(At(0ms), {9000, 9000});
  link.Add(At(0ms), link.last_block(), 9000);
  EXPECT_THAT(link.CancelCall(At(1ms), 2), ElementsAre("drop 2"));
  EXPECT_THAT(link.CancelCall(At(1ms), 2), IsEmpty());
  EXPECT_EQ(link.state().waiting_calls, 1);
  EXPECT_THAT(link.Finish(At(9ms), 0), ElementsAre("send 1"));
  EXPECT_THAT(link.Add(At(9ms), link.last_block(), 1000), ElementsAre("send 3"));
}

TEST(CancelCallTest, LetsGoWhatWaitedBehindIt) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kRolling));
  link.Submit(At(0ms), {5000});
  link.Add(At(0ms), link.last_block(), 9000);
  EXPECT_THAT(link.Submit(At(0ms), {5000}), IsEmpty());
  EXPECT_THAT(link.CancelCall(At(1ms), 1), ElementsAre("drop 1", "send 2"));
}

TEST(CancelCallTest, AbortsACallInFlightOnce) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kRolling));
  link.Submit(At(0ms), {5000, 5000});
  EXPECT_THAT(link.CancelCall(At(1ms), 0), ElementsAre("abort 0"));
  EXPECT_THAT(link.CancelCall(At(1ms), 0), IsEmpty());
  EXPECT_THAT(link.Cancel(At(1ms), link.last_block()), ElementsAre("abort 1"));
  EXPECT_EQ(link.state().in_flight_bytes, 10'000);
  link.Finish(At(2ms), 0, CallEnd::kAborted);
  EXPECT_THAT(link.CancelCall(At(2ms), 0), IsEmpty());
  link.Finish(At(2ms), 1, CallEnd::kAborted);
  EXPECT_EQ(link.state().blocks, 0);
  EXPECT_EQ(link.state().in_flight_bytes, 10'000);
  link.Timer(At(2ms) + kDrainTime);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(CancelCallTest, BlockEndsWithItsLastCall) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kRolling));
  link.Submit(At(0ms), {9000});
  link.Add(At(0ms), link.last_block(), 9000);
  link.Finish(At(1ms), 0);
  link.Finish(At(1ms), 1);
  EXPECT_EQ(link.state().blocks, 0);
  link.Submit(At(2ms), {9000});
  link.Submit(At(2ms), {9000});
  link.CancelCall(At(3ms), 2);
  link.Finish(At(3ms), 2, CallEnd::kAborted);
  EXPECT_EQ(link.state().blocks, 1);
}

TEST(CancelCallTest, BatchKeepsItsSlotWithoutItsFirstCall) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kBatches));
  // Two batches of one call, with a slot each.
  EXPECT_THAT(link.Submit(At(0ms), {9000, 9000}), ElementsAre("send 0"));
  link.Finish(At(1ms), 0);
  const TimePoint slot = link.next_timer();
  ASSERT_GT(slot, At(1ms));
  std::vector<Action> actions;
  link.schedule().CancelCall(At(1ms), {.slot = 1, .generation = 0}, actions);
  EXPECT_EQ(actions.size(), 1);
  EXPECT_EQ(link.state().blocks, 0);

  // Batches of two: the second call of the batch waits for the slot.
  EXPECT_THAT(link.Submit(At(100ms), {5000, 5000, 5000, 5000}), ElementsAre("send 2", "send 4"));
  const TimePoint second = link.next_timer();
  link.Finish(At(101ms), 2);
  link.Finish(At(101ms), 4);
  actions.clear();
  // The calls get table slots in the order in which they leave, the last released slot first. So tags 2, 4, 3 and 5
  // have the slots 1, 0, 2 and 3.
  link.schedule().CancelCall(At(102ms), {.slot = 2, .generation = 0}, actions);
  ASSERT_EQ(actions.size(), 1);
  EXPECT_EQ(actions[0].kind, Action::Kind::kDrop);
  EXPECT_EQ(actions[0].tag, 3);
  EXPECT_EQ(link.next_timer(), second);
  EXPECT_THAT(link.Timer(second - std::chrono::nanoseconds(1)), IsEmpty());
  EXPECT_THAT(link.Timer(second), ElementsAre("send 5"));
}

TEST(CancelCallTest, RequestThatIsOutKeepsTheRoomOfItsHeadersUntilTheyHaveDrained) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000, 9000});
  EXPECT_THAT(link.CancelCall(At(1ms), 0), ElementsAre("abort 0"));
  EXPECT_THAT(link.CancelCall(At(1ms), 0), IsEmpty());
  EXPECT_EQ(link.state().ungranted_calls, 1);
  EXPECT_EQ(link.state().in_flight_calls, 1);
  EXPECT_EQ(link.state().in_flight_bytes, 192);
  EXPECT_THAT(link.Ready(At(2ms), 0, 100), IsEmpty());  // the headers came before the abort
  link.Finish(At(3ms), 0, CallEnd::kAborted);
  EXPECT_EQ(link.next_timer(), At(1ms) + kDrainTime);
  link.Timer(At(1ms) + kDrainTime);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
  EXPECT_EQ(link.state().blocks, 1);
}

TEST(CancelCallTest, ReadyAnswerIsNotGrantedAndCostsNothing) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {3300, 3300, 3300, 1000});
  for (const uint64_t tag : {0, 1, 2}) link.Ready(At(20ms), tag, 3300);
  EXPECT_THAT(link.Ready(At(20ms), 3, 3300), IsEmpty());
  EXPECT_THAT(link.CancelCall(At(21ms), 2), ElementsAre("abort 2"));
  EXPECT_EQ(link.state().in_flight_bytes, 6600);
  EXPECT_THAT(link.Finish(At(22ms), 0), ElementsAre("grant 3 3300"));
  link.Finish(At(23ms), 1);
  link.Finish(At(23ms), 3);
  EXPECT_EQ(link.state().blocks, 1);
  link.Finish(At(23ms), 2, CallEnd::kAborted);
  EXPECT_EQ(link.state().blocks, 0);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(CancelCallTest, GrantedAnswerStaysChargedUntilItHasDrained) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {3300, 3300, 3300});
  for (const uint64_t tag : {0, 1, 2}) link.Ready(At(20ms), tag, 3300);
  EXPECT_THAT(link.CancelCall(At(21ms), 0), ElementsAre("abort 0"));
  EXPECT_THAT(link.Finish(At(22ms), 0, CallEnd::kAborted), IsEmpty());
  EXPECT_THAT(link.Timer(At(22ms) + kDrainTime), ElementsAre("grant 2 3300"));
}

// Bytes that were never granted cannot come, and granted bytes are charged until they have drained. So other responses
// do not meet them in the buffer, however large the response is.
TEST(CancelCallTest, OfALargeAnswerNothingComesThatIsNotCharged) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {200'000, 3300});
  EXPECT_THAT(link.Ready(At(20ms), 0, 200'000), ElementsAre("grant 0 2991", "grant 0 2991", "grant 0 2991"));
  EXPECT_THAT(link.Ready(At(20ms), 1, 3300), IsEmpty());
  EXPECT_THAT(link.CancelCall(At(21ms), 0), ElementsAre("abort 0"));
  EXPECT_THAT(link.Receive(At(22ms), 0, 3300), ElementsAre("grant 1 3300")) << "on its way before the abort";
  EXPECT_THAT(link.Finish(At(22ms), 0, CallEnd::kAborted), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 3 * 2991);
  link.Timer(At(22ms) + kDrainTime);
  EXPECT_EQ(link.state().in_flight_bytes, 3300);
}

TEST(CancelTest, ABudgetAboveTheBufferDrainsForItsOwnTime) {
  ScheduleOptions options = GrantsOptions();
  options.policy = SchedulePolicy::kRolling;
  options.budget_bytes = 2 * options.profile.buffer_bytes;
  ScheduleDriver link(options);
  link.Submit(At(0ms), {20'000});
  link.Cancel(At(0ms), link.last_block());
  link.Finish(At(1ms), 0, CallEnd::kAborted);
  EXPECT_EQ(link.next_timer(), At(1ms + 1ms + 20ms));
}

TEST(CancelTest, AbortsABlockInEveryPhase) {
  ScheduleOptions options = GrantsOptions();
  options.budget_bytes = 3 * 3 * 192;  // three requests
  ScheduleDriver link(options);
  link.Submit(At(0ms), {1000, 1000, 1000, 1000, 1000, 1000, 1000});
  link.Ready(At(20ms), 0, 570);
  link.Ready(At(20ms), 1, 570);
  link.Ready(At(20ms), 2, 570);
  ASSERT_EQ(link.state().in_flight_calls, 2);
  EXPECT_THAT(link.Cancel(At(21ms), link.last_block()),
              ElementsAre("abort 0", "abort 1", "abort 3", "abort 4", "abort 5", "abort 2", "drop 6"));
  EXPECT_THAT(link.Cancel(At(21ms), link.last_block()), IsEmpty());
  for (const uint64_t tag : {0, 1, 2, 3, 4, 5}) link.Finish(At(22ms), tag, CallEnd::kAborted);
  EXPECT_EQ(link.state().blocks, 0);
  EXPECT_EQ(link.state().in_flight_bytes, 2 * 570 + 3 * 192);
  link.Timer(At(22ms) + kDrainTime);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

}  // namespace
}  // namespace sluice
