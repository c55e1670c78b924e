#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/scheduling/grants_options.h"
#include "tests/scheduling/schedule_driver.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// However large an answer is, 4000 bytes of it can be in the network.
LinkSchedule::Options Bounded(Discipline discipline) {
  LinkSchedule::Options options = GrantsOptions();
  options.discipline = discipline;
  options.max_in_flight_per_call_bytes = 4000;
  return options;
}

TEST(CallBoundTest, RefusesLessThanAByte) {
  LinkSchedule::Options options = Bounded(Discipline::kRolling);
  options.max_in_flight_per_call_bytes = 0;
  EXPECT_EQ(LinkSchedule::Create(options).status(),
            absl::InvalidArgumentError("max_in_flight_per_call_bytes: 0 is below 1"));
}

TEST(CallBoundTest, RollingChargesNoMore) {
  ScheduleDriver link(Bounded(Discipline::kRolling));
  EXPECT_THAT(link.Submit(At(0ms), {50'000, 3000, 4001, 1000}), ElementsAre("send 0", "send 1"));
  EXPECT_EQ(link.state().in_flight_bytes, 7000);
  EXPECT_THAT(link.Finish(At(1ms), 1), ElementsAre("send 2", "send 3"));
  EXPECT_EQ(link.state().in_flight_bytes, 9000);
}

TEST(CallBoundTest, GrantsChargeNoMore) {
  ScheduleDriver link(Bounded(Discipline::kGrants));
  link.Submit(At(0ms), {50'000, 1000});
  EXPECT_THAT(link.Ready(At(1ms), 0), ElementsAre("grant 0"));
  EXPECT_THAT(link.Ready(At(1ms), 1, 60'000), ElementsAre("grant 1"));
  EXPECT_EQ(link.state().in_flight_bytes, 8000);
}

TEST(CallBoundTest, WhatIsLeftOfALargeAnswerCostsNoMore) {
  ScheduleDriver link(Bounded(Discipline::kGrants));
  link.Submit(At(0ms), {50'000});
  link.Ready(At(1ms), 0);
  link.Progress(At(2ms), 0, 30'000);
  EXPECT_EQ(link.state().in_flight_bytes, 4000);
  link.Progress(At(3ms), 0, 3000);
  EXPECT_EQ(link.state().in_flight_bytes, 3000);
}

TEST(CallBoundTest, TheWindowCountsWholeAnswers) {
  ScheduleDriver link(Bounded(Discipline::kGrants));
  link.Submit(At(0ms), {40'000});
  link.Ready(At(80ms), 0);
  EXPECT_EQ(link.state().grant_window, 2 + 4);
}

TEST(CallBoundTest, BatchesTakeMoreWorkersAndMoreRounds) {
  LinkSchedule::Options options = Bounded(Discipline::kBatches);
  ScheduleDriver link(options);
  EXPECT_THAT(link.Submit(At(0ms), {8000, 8000, 8000}), ElementsAre("send 0", "send 2"));
  const TimePoint bounded_slot = link.next_timer();
  options.max_in_flight_per_call_bytes.reset();
  ScheduleDriver unbounded(options);
  EXPECT_THAT(unbounded.Submit(At(0ms), {8000, 8000, 8000}), ElementsAre("send 0"));
  unbounded.Finish(At(1ms), 0);
  EXPECT_EQ(bounded_slot - unbounded.next_timer(), 11ms);  // R + B/C
}

TEST(CallBoundTest, UnscheduledTakesNoNoteOfIt) {
  ScheduleDriver link(Bounded(Discipline::kUnscheduled));
  link.Submit(At(0ms), {50'000});
  EXPECT_EQ(link.state().in_flight_bytes, 50'000);
}

}  // namespace
}  // namespace sluice
