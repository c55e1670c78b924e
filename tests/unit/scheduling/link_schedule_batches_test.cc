#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduling/link_schedule.h"
#include "tests/unit/scheduling/schedule_driver.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""us;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A byte takes a microsecond and frames have no overhead. Responses of 3 packets have wnd_max = 3, n = 3, and T = 1040
// * 3 us + 2 * (1 + 10) ms = 25.12 ms. So T~ = ceil(25.12 + 0.2) = 26 ms.
ScheduleOptions Batches() {
  ScheduleOptions options;
  options.profile.capacity_bytes_per_second = 1e6;
  options.profile.buffer_bytes = 10'000;
  options.profile.propagation_rtt = absl::Milliseconds(1);
  options.profile.packet_payload_bytes = 1000;
  options.profile.frame_bytes = 1000;
  options.profile.ack_frame_bytes = 40;
  options.profile.timer_granularity = absl::Milliseconds(1);
  options.profile.timer_jitter = absl::Microseconds(200);
  options.policy = SchedulePolicy::kBatches;
  options.stall_timeout = absl::InfiniteDuration();  // the only timer is the timer of the slots
  return options;
}

constexpr auto kSlot = 26ms;
constexpr auto kJitter = 200us;

void FinishAll(ScheduleDriver& link, TimePoint now, std::initializer_list<uint64_t> tags) {
  for (const uint64_t tag : tags) EXPECT_THAT(link.Finish(now, tag), IsEmpty());
}

TEST(BatchesTest, CallsAreDealtRoundRobinAndLeaveOneBatchASlot) {
  ScheduleDriver link(Batches());
  EXPECT_THAT(link.Submit(At(5ms), {3000, 3000, 3000, 3000, 3000, 3000, 3000}),
              ElementsAre("send 0", "send 3", "send 6"));
  EXPECT_EQ(link.next_timer(), At(5ms + kSlot));
  FinishAll(link, At(20ms), {0, 3, 6});  // open loop: no request leaves because of room alone
  EXPECT_THAT(link.Timer(At(5ms + kSlot) - 1us), IsEmpty());
  EXPECT_THAT(link.Timer(At(5ms + kSlot)), ElementsAre("send 1", "send 4"));
  FinishAll(link, At(6ms + kSlot), {1, 4});
  EXPECT_EQ(link.next_timer(), At(5ms + 2 * kSlot));
  EXPECT_THAT(link.Timer(At(5ms + 2 * kSlot)), ElementsAre("send 2", "send 5"));
  EXPECT_EQ(link.next_timer(), TimePoint::max());
}

TEST(BatchesTest, BatchesAreAsEqualAsTheyCanBe) {
  ScheduleOptions options = Batches();
  options.profile.buffer_bytes = 15'000;  // n = 5
  ScheduleDriver link(options);
  EXPECT_THAT(link.Submit(At(0ms), {3000, 3000, 3000, 3000, 3000, 3000}), ElementsAre("send 0", "send 2", "send 4"));
}

TEST(BatchesTest, LargestAnswerOfTheBlockSetsTheBatch) {
  ScheduleDriver link(Batches());  // 5 packets: n = 2
  EXPECT_THAT(link.Submit(At(0ms), {1000, 1000, 5000, 1000}), ElementsAre("send 0", "send 2"));
}

TEST(BatchesTest, AnswerLargerThanTheBufferGoesAlone) {
  ScheduleDriver link(Batches());
  EXPECT_THAT(link.Submit(At(0ms), {20'000, 1000}), ElementsAre("send 0"));
  FinishAll(link, At(30ms), {0});
  EXPECT_THAT(link.Timer(link.next_timer()), ElementsAre("send 1"));
}

TEST(BatchesTest, SmallerBudgetMakesSmallerBatches) {
  ScheduleOptions options = Batches();
  options.budget_bytes = 6000;
  ScheduleDriver link(options);
  EXPECT_THAT(link.Submit(At(0ms), {3000, 3000, 3000, 3000}), ElementsAre("send 0", "send 2"));
  EXPECT_EQ(link.next_timer(), At(kSlot));  // the buffer is as deep as before
}

TEST(BatchesTest, NextBlockStartsWhenTheFirstHasEnded) {
  ScheduleDriver link(Batches());
  EXPECT_THAT(link.Submit(At(0ms), {3000}), ElementsAre("send 0"));
  EXPECT_THAT(link.Submit(At(0ms), {3000, 3000, 3000, 3000}), IsEmpty());
  EXPECT_EQ(link.next_timer(), TimePoint::max());
  EXPECT_THAT(link.Finish(At(7ms), 0), ElementsAre("send 1", "send 3"));
  EXPECT_EQ(link.next_timer(), At(7ms + kSlot));
}

TEST(BatchesTest, CancelOfTheBlockWhoseTurnItIsPassesTheTurnOn) {
  ScheduleDriver link(Batches());
  link.Submit(At(0ms), {3000, 3000, 3000, 3000});
  const BlockId block = link.last_block();
  link.Submit(At(0ms), {3000});
  EXPECT_THAT(link.Cancel(At(1ms), block), ElementsAre("abort 0", "abort 2", "drop 1", "drop 3"));
  EXPECT_THAT(link.Finish(At(1ms), 0), IsEmpty());
  EXPECT_THAT(link.Finish(At(1ms), 2), ElementsAre("send 4"));
}

TEST(BatchesTest, ExpiryOfTheBlockWhoseTurnItIsPassesTheTurnOn) {
  ScheduleDriver link(Batches());
  link.Submit(At(0ms), {3000, 3000, 3000, 3000}, At(20ms));
  link.Submit(At(0ms), {3000});
  FinishAll(link, At(10ms), {0, 2});
  EXPECT_EQ(link.next_timer(), At(20ms));
  EXPECT_THAT(link.Timer(At(20ms)), ElementsAre("expire 1", "expire 3", "send 4"));
}

TEST(BatchesTest, LatenessWithinTheJitterDoesNotMoveTheSlots) {
  ScheduleDriver link(Batches());
  link.Submit(At(0ms), {5000, 5000, 5000, 5000, 5000, 5000});  // T~ = ceil(27.4) = 28 ms
  FinishAll(link, At(20ms), {0, 3});
  EXPECT_THAT(link.Timer(At(28ms + kJitter)), ElementsAre("send 1", "send 4"));
  EXPECT_EQ(link.next_timer(), At(56ms));
}

TEST(BatchesTest, MoreLatenessMovesTheSlotsBehind) {
  ScheduleDriver link(Batches());
  link.Submit(At(0ms), {5000, 5000, 5000, 5000, 5000, 5000});
  FinishAll(link, At(20ms), {0, 3});
  EXPECT_THAT(link.Timer(At(100ms)), ElementsAre("send 1", "send 4"));  // two slots have passed, one batch leaves
  EXPECT_EQ(link.next_timer(), At(128ms - kJitter));
}

TEST(BatchesTest, BatchThatFindsNoRoomWaitsAndMovesTheSlotsBehind) {
  ScheduleDriver link(Batches());
  link.Submit(At(0ms), {5000, 5000, 5000, 5000, 5000, 5000});
  EXPECT_THAT(link.Timer(At(28ms)), IsEmpty());
  EXPECT_EQ(link.next_timer(), TimePoint::max());  // it waits for room, not for time
  EXPECT_THAT(link.Finish(At(30ms), 0), ElementsAre("send 1"));
  EXPECT_THAT(link.Finish(At(33ms), 3), ElementsAre("send 4"));
  EXPECT_EQ(link.next_timer(), At(33ms - kJitter + 28ms));
}

TEST(BatchesTest, AddedCallGetsOneMoreSlotAtTheEnd) {
  ScheduleDriver link(Batches());
  link.Submit(At(0ms), {3000, 3000, 3000, 3000});
  EXPECT_THAT(link.Add(At(10ms), link.last_block(), 3000), IsEmpty());
  FinishAll(link, At(10ms), {0, 2});
  EXPECT_THAT(link.Timer(At(kSlot)), ElementsAre("send 1", "send 3"));
  FinishAll(link, At(40ms), {1, 3});
  EXPECT_EQ(link.next_timer(), At(2 * kSlot));
  EXPECT_THAT(link.Timer(At(2 * kSlot)), ElementsAre("send 4"));
}

TEST(BatchesTest, CallAddedAfterTheLastSlotLeavesAtOnce) {
  ScheduleDriver link(Batches());
  link.Submit(At(0ms), {3000});
  EXPECT_THAT(link.Add(At(40ms), link.last_block(), 3000), ElementsAre("send 1"));
}

TEST(BatchesTest, LargerAddedCallMakesLongerSlots) {
  ScheduleDriver link(Batches());
  link.Submit(At(0ms), {3000, 3000, 3000, 3000});
  link.Add(At(10ms), link.last_block(), 5000);
  link.Add(At(10ms), link.last_block(), 3000);
  FinishAll(link, At(20ms), {0, 2});
  EXPECT_THAT(link.Timer(At(kSlot)), ElementsAre("send 1", "send 3"));
  EXPECT_EQ(link.next_timer(), At(kSlot + 28ms));
  FinishAll(link, At(30ms), {1, 3});
  EXPECT_THAT(link.Timer(At(kSlot + 28ms)), ElementsAre("send 4"));
  FinishAll(link, At(60ms), {4});
  EXPECT_THAT(link.Timer(At(kSlot + 2 * 28ms)), ElementsAre("send 5"));
}

}  // namespace
}  // namespace sluice
