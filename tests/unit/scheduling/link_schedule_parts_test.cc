#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/schedule_driver.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A third of the budget of 10,000 bytes is three packets. A frame header takes nine of their bytes.
constexpr int64_t kPart = 2991;

TEST(PartsTest, AnswerThatCostsMoreThanAThirdOfTheBudgetComesInFullPackets) {
  for (const int64_t size : {3333, 3334}) {
    ScheduleDriver link(GrantsOptions());
    EXPECT_EQ(link.schedule().FitsOnePart(size), size == 3333);
    link.Submit(At(0ms), {9000});
    EXPECT_EQ(link.Ready(At(20ms), 0, size).front(), size == 3333 ? "grant 0 3333" : "grant 0 1991");
  }
}

TEST(PartsTest, TlsRecordsLeaveLess) {
  ScheduleOptions options = GrantsOptions();
  options.record_overhead_bytes = 31;
  ScheduleDriver link(options);
  link.Submit(At(0ms), {9000});
  EXPECT_EQ(link.Ready(At(20ms), 0, 9000).front(), "grant 0 2969");
}

TEST(PartsTest, RefusesANegativeOverhead) {
  ScheduleOptions options = GrantsOptions();
  options.record_overhead_bytes = -1;
  EXPECT_EQ(options.Validate(), absl::InvalidArgumentError("record_overhead_bytes: -1 is below 0"));
}

TEST(PartsTest, ALargeAnswerAloneKeepsTheLinkBusy) {
  ScheduleOptions options = GrantsOptions();
  options.profile.buffer_bytes = 30'000;
  ScheduleDriver link(options);
  link.Submit(At(0ms), {200'000});
  int64_t to_come = 200'000;
  link.Ready(At(20ms), 0, to_come);
  for (TimePoint now = At(20ms); to_come > 0; now += 1ms) {
    const int64_t outstanding = link.state().in_flight_bytes;
    ASSERT_GE(outstanding, std::min<int64_t>(to_come, 9991)) << to_come;
    ASSERT_LE(outstanding, 30'000) << to_come;
    const int64_t bytes = std::min<int64_t>(outstanding, 1000);
    to_come -= bytes;
    link.Receive(now, 0, bytes);
  }
  EXPECT_EQ(link.state().in_flight_bytes, 0);
}

TEST(PartsTest, PartsOfOneMessageFollowEachOther) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {50'000, 50'000});
  EXPECT_THAT(link.Ready(At(20ms), 0, 50'000), ElementsAre("grant 0 2991", "grant 0 2991", "grant 0 2991"));
  EXPECT_THAT(link.Ready(At(20ms), 1, 50'000), IsEmpty());
  EXPECT_THAT(link.Receive(At(23ms), 0, kPart), ElementsAre("grant 0 2991"));
}

TEST(PartsTest, TheLastPartIsTheRest) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000});
  EXPECT_THAT(link.Ready(At(20ms), 0, kPart + 3000), ElementsAre("grant 0 2991", "grant 0 3000"));
}

// Parts as large as possible would be 2991, 2991 and 418 bytes. TCP would repair the loss of the last by a timeout
// only.
TEST(PartsTest, LeaveNoSinglePacketForTheLast) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000});
  EXPECT_THAT(link.Ready(At(20ms), 0, 6400), ElementsAre("grant 0 2991", "grant 0 1991", "grant 0 1418"));
}

TEST(StreamTest, HoldsARoomForHeadersBetweenItsMessages) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {9000});
  EXPECT_THAT(link.Ready(At(20ms), 0, 1005), ElementsAre("grant 0 1005"));  // including the next prefix
  EXPECT_EQ(link.schedule().Demand(At(20ms)).in_flight_bytes, 1005);
  link.Receive(At(21ms), 0, 1005);
  EXPECT_EQ(link.state().in_flight_bytes, 0);
  EXPECT_EQ(link.schedule().Demand(At(21ms)).in_flight_bytes, 192);
  EXPECT_EQ(link.next_timer(), TimePoint::max()) << "nothing is outstanding that could stall";
  EXPECT_THAT(link.Ready(At(900ms), 0, 2000), ElementsAre("grant 0 2000"));
  link.Receive(At(901ms), 0, 2000);
  link.Finish(At(902ms), 0);
  EXPECT_EQ(link.schedule().Demand(At(902ms)).in_flight_bytes, 0);
}

TEST(StreamTest, QuietStreamsDoNotCountInTheWindow) {
  ScheduleOptions options = GrantsOptions();
  options.budget_bytes = 1728;  // three requests
  ScheduleDriver link(options);
  link.Submit(At(0ms), {1000, 1000, 1000, 1000});
  ASSERT_EQ(link.state().waiting_calls, 1);
  EXPECT_THAT(link.Ready(At(20ms), 0, 100), ElementsAre("grant 0 100", "send 3"));
  link.Receive(At(21ms), 0, 100);
  EXPECT_THAT(link.Ready(At(21ms), 1, 100), Contains("grant 1 100"));
  link.Receive(At(22ms), 1, 100);
  EXPECT_THAT(link.Submit(At(22ms), {1000}), ElementsAre("send 4"));
}

}  // namespace
}  // namespace sluice
