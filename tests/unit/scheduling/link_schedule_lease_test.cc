#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/scheduling/link_schedule.h"
#include "tests/random_seed.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/schedule_driver.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kLink = 10'000;

ScheduleDriver::Words Lend(ScheduleDriver& link, TimePoint now, BudgetLease lease) {
  lease.link_bytes = lease.plan_bytes = kLink;
  return link.SetLease(now, lease);
}

TEST(SetLeaseTest, RefusesWeightsThatFitNoClasses) {
  LinkSchedule schedule(OptionsWith(SchedulePolicy::kRolling));
  std::vector<Action> actions;
  const auto message = [&](const std::vector<double>& weights) {
    const BudgetLease lease{.bytes = kLink, .link_bytes = kLink, .plan_bytes = kLink, .class_weights = weights};
    return std::string(schedule.SetLease(At(0ms), lease, actions).message());
  };
  EXPECT_EQ(message({2}), "");
  EXPECT_EQ(message({1, 2}), "class_weights: there are 2, and 1 classes");
  EXPECT_EQ(message({0}), "class_weights: 0 is not above 0");
}

TEST(SetLeaseTest, NothingLeavesWithoutOne) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kRolling));
  Lend(link, At(0ms), {.bytes = 0});
  EXPECT_THAT(link.Submit(At(1ms), {1000}), IsEmpty());
  EXPECT_THAT(Lend(link, At(2ms), {.bytes = 1000}), ElementsAre("send 0"));
}

TEST(SetLeaseTest, WithGrantsNothingIsAskedForNorGranted) {
  ScheduleDriver link(GrantsOptions());
  Lend(link, At(0ms), {.bytes = 0});
  EXPECT_THAT(link.Submit(At(1ms), {4000}), IsEmpty());
  EXPECT_THAT(Lend(link, At(2ms), {.bytes = 4000}), ElementsAre("send 0"));
  Lend(link, At(3ms), {.bytes = 0});
  EXPECT_THAT(link.Ready(At(4ms), 0, 3300), IsEmpty());
  EXPECT_THAT(Lend(link, At(5ms), {.bytes = 3299}), IsEmpty());
  EXPECT_EQ(link.schedule().Demand(At(5ms)).need_bytes, 3300);
  EXPECT_THAT(Lend(link, At(6ms), {.bytes = 3300}), ElementsAre("grant 0 3300"));
}

TEST(SetLeaseTest, PartsFollowThePlanAndNotTheLeaseOfTheMoment) {
  ScheduleDriver link(GrantsOptions());
  Lend(link, At(0ms), {.bytes = 4000});
  link.Submit(At(0ms), {9000});
  EXPECT_THAT(link.Ready(At(20ms), 0, 9000), ElementsAre("grant 0 2991"));
}

TEST(SetLeaseTest, WhatHungWorkersWereGrantedEarlyIsNeededBesideTheNextGrant) {
  ScheduleDriver link(GrantsOptions());
  EXPECT_THAT(link.Submit(At(0ms), {3000}), ElementsAre("send 0 3000"));
  Lend(link, At(1ms), {.bytes = 4000});
  link.Submit(At(1ms), {3300});
  link.Ready(At(20ms), 1, 3300);
  const int64_t need_bytes = link.schedule().Demand(At(20ms)).need_bytes;
  EXPECT_EQ(need_bytes, 3000 + 3300);
  EXPECT_THAT(Lend(link, At(21ms), {.bytes = need_bytes - 1}), IsEmpty());
  EXPECT_THAT(Lend(link, At(22ms), {.bytes = need_bytes}), ElementsAre("grant 1 3300"));
}

TEST(SetLeaseTest, EndsByItselfAtItsTime) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kRolling));
  Lend(link, At(0ms), {.bytes = 2000, .until = At(10ms)});
  EXPECT_THAT(link.Submit(At(1ms), {2000, 2000, 2000}), ElementsAre("send 0"));
  EXPECT_THAT(link.Finish(At(9ms), 0), ElementsAre("send 1"));
  EXPECT_THAT(link.Finish(At(10ms), 1), IsEmpty());
  EXPECT_THAT(link.Submit(At(11ms), {100}), IsEmpty());
  EXPECT_THAT(Lend(link, At(12ms), {.bytes = 2000, .until = At(12ms)}), IsEmpty());
  EXPECT_THAT(Lend(link, At(13ms), {.bytes = 2000, .until = At(20ms)}), ElementsAre("send 2"));
}

TEST(SetLeaseTest, AnAnswerThatIsLargerWaitsUnlessItMayExceed) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kRolling));
  Lend(link, At(0ms), {.bytes = 2990});
  EXPECT_THAT(link.Submit(At(1ms), {4000}), IsEmpty());
  EXPECT_EQ(link.schedule().Demand(At(1ms)).need_bytes, 4000);
  EXPECT_THAT(Lend(link, At(2ms), {.bytes = 2990, .may_exceed = true}), ElementsAre("send 0 2991"));
}

TEST(SetLeaseTest, ASmallerOneOnlyDrains) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kRolling));
  Lend(link, At(0ms), {.bytes = 4000});
  EXPECT_THAT(link.Submit(At(1ms), {2000, 2000, 2000}), ElementsAre("send 0", "send 1"));
  EXPECT_THAT(Lend(link, At(2ms), {.bytes = 2000}), IsEmpty());
  EXPECT_EQ(link.state().in_flight_bytes, 4000);
  EXPECT_THAT(link.Finish(At(3ms), 0), IsEmpty());
  EXPECT_THAT(link.Finish(At(4ms), 1), ElementsAre("send 2"));
}

TEST(SetLeaseTest, ABudgetTakesItsPlaceForGood) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kRolling));
  Lend(link, At(0ms), {.bytes = 0, .until = At(5ms)});
  link.SetBudget(At(1ms), 1000);
  EXPECT_THAT(link.Submit(At(6ms), {5000}), ElementsAre("send 0 991"));
}

TEST(SetLeaseTest, FieldsOutOfBoundsAreNamed) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kRolling));
  std::vector<Action> actions;
  const auto set = [&](const BudgetLease& lease) { return link.schedule().SetLease(At(0ms), lease, actions); };
  EXPECT_EQ(set({}), absl::InvalidArgumentError("link_bytes: 0 is below 1"));
  EXPECT_EQ(set({.bytes = -1, .link_bytes = 5}),
            absl::InvalidArgumentError("bytes: -1 is outside of 0 to link_bytes: 5"));
  EXPECT_EQ(set({.bytes = 1, .link_bytes = 5, .plan_bytes = 6}),
            absl::InvalidArgumentError("plan_bytes: 6 is outside of 0 to link_bytes: 5"));
}

TEST(SetLeaseTest, AnswersArePlannedForWhatItSays) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kRolling));
  EXPECT_EQ(link.state().plan_bytes, kLink);
  link.SetLease(At(0ms), {.bytes = 0, .link_bytes = kLink, .plan_bytes = 5000});
  EXPECT_EQ(link.state().plan_bytes, 5000);
  link.SetBudget(At(0ms), 700);
  EXPECT_EQ(link.state().plan_bytes, 700);
}

TEST(DemandTest, SaysWhatIsWantedAndWhatIsTaken) {
  ScheduleDriver link(OptionsWith(SchedulePolicy::kRolling));
  EXPECT_EQ(link.schedule().Demand(At(0ms)).demand_bytes, 0);
  EXPECT_EQ(link.schedule().Demand(At(0ms)).oldest_block, 0u);
  Lend(link, At(0ms), {.bytes = 5000, .until = At(10ms)});
  link.Submit(At(1ms), {3000, 4000});
  const BlockId first = link.last_block();
  link.Submit(At(2ms), {1000});
  LinkDemand demand = link.schedule().Demand(At(3ms));
  EXPECT_EQ(demand.limit_bytes, 5000);
  EXPECT_EQ(demand.demand_bytes, 8000);
  EXPECT_EQ(demand.in_flight_bytes, 3000);
  EXPECT_EQ(demand.need_bytes, 4000);
  EXPECT_EQ(demand.received_bytes, 0);
  EXPECT_EQ(demand.oldest_block, first);
  EXPECT_EQ(demand.oldest_since, At(1ms));
  EXPECT_EQ(link.schedule().Demand(At(10ms)).limit_bytes, 0);

  link.Receive(At(4ms), 0, 3000);
  link.Finish(At(4ms), 0);
  link.Receive(At(5ms), 1, 4000);
  link.Finish(At(5ms), 1);
  demand = link.schedule().Demand(At(5ms));
  EXPECT_EQ(demand.demand_bytes, 1000);
  EXPECT_EQ(demand.in_flight_bytes, 1000);
  EXPECT_EQ(demand.need_bytes, 0);
  EXPECT_EQ(demand.received_bytes, 7000);
  EXPECT_EQ(demand.oldest_block, link.last_block());
  EXPECT_EQ(demand.oldest_since, At(2ms));
  link.Finish(At(6ms), 2, CallEnd::kAborted);
  EXPECT_EQ(link.schedule().Demand(At(6ms)).received_bytes, 7000);
  EXPECT_EQ(link.schedule().Demand(At(6ms)).in_flight_bytes, 1000);  // draining
  EXPECT_EQ(link.schedule().Demand(At(6ms)).oldest_block, 0u);
}

TEST(DemandTest, HeadersThatMayComeAreInFlight) {
  ScheduleDriver link(GrantsOptions());
  link.Submit(At(0ms), {4000, 4000, 4000, 4000});
  EXPECT_EQ(link.schedule().Demand(At(0ms)).in_flight_bytes, 4 * 192);
  link.Ready(At(20ms), 0, 3300);
  EXPECT_EQ(link.schedule().Demand(At(20ms)).in_flight_bytes, 3300 + 3 * 192);
  link.Receive(At(21ms), 0, 3000);
  EXPECT_EQ(link.schedule().Demand(At(21ms)).received_bytes, 3000);
  EXPECT_EQ(link.schedule().Demand(At(21ms)).demand_bytes, 300 + 3 * 4000);
}

// Eight requests are out, and may send their headers at any moment.
TEST(SetLeaseTest, AnAnswerIsGrantedBesideTheHeadersThatMayCome) {
  ScheduleDriver link(GrantsOptions());
  Lend(link, At(0ms), {.bytes = kLink});
  link.Submit(At(0ms), std::vector<int64_t>(9, 4000));
  Lend(link, At(1ms), {.bytes = 3300});
  EXPECT_THAT(link.Ready(At(2ms), 0, 3300), IsEmpty());
  LinkDemand demand = link.schedule().Demand(At(2ms));
  EXPECT_LE(demand.in_flight_bytes, demand.limit_bytes);
  EXPECT_EQ(demand.need_bytes, 3300);
  // The calls become stragglers, for which the response need not wait: their headers have a third of the lease.
  EXPECT_EQ(link.next_timer(), At(8 * kDrainTime));
  EXPECT_THAT(link.Timer(At(8 * kDrainTime)), IsEmpty());
  demand = link.schedule().Demand(At(8 * kDrainTime));
  EXPECT_EQ(demand.need_bytes, 3300 + 8 * 192);
  EXPECT_THAT(Lend(link, At(90ms), {.bytes = demand.need_bytes}), ElementsAre("grant 0 3300"));
  demand = link.schedule().Demand(At(90ms));
  EXPECT_LE(demand.in_flight_bytes, demand.limit_bytes);
}

TEST(SetLeaseTest, WhenTheOthersAreReadyTheirHeadersNeedNoRoom) {
  ScheduleDriver link(GrantsOptions());
  Lend(link, At(0ms), {.bytes = kLink});
  link.Submit(At(0ms), {4000, 4000});
  Lend(link, At(1ms), {.bytes = 3300});
  EXPECT_THAT(link.Ready(At(2ms), 0, 3300), IsEmpty());
  EXPECT_THAT(link.Ready(At(3ms), 1, 3300), ElementsAre("grant 0 3300"));
}

TEST(SetLeaseTest, HeadersOfStragglersFitTheLease) {
  ScheduleDriver link(GrantsOptions());
  Lend(link, At(0ms), {.bytes = 1000});
  link.Submit(At(0ms), std::vector<int64_t>(50, 800));
  link.Ready(At(1ms), 0, 800);
  for (TimePoint now = At(100ms); now < At(1000ms); now += 100ms) link.Timer(now);
  LinkDemand demand = link.schedule().Demand(At(1000ms));
  EXPECT_EQ(demand.limit_bytes, 1000);
  EXPECT_LE(demand.in_flight_bytes, 1000);
  EXPECT_GT(demand.need_bytes, 800);
  EXPECT_THAT(Lend(link, At(1001ms), {.bytes = 2 * demand.need_bytes}), ::testing::Not(IsEmpty()));
}

class LeasesOfTheMoment : public ::testing::TestWithParam<SchedulePolicy> {};

// With any sequence of leases, calls that leave fit the current lease, and in the end all calls have left.
TEST_P(LeasesOfTheMoment, HoldWhatLeaves) {
  const uint64_t seed = TakeRandomSeed().value;
  SCOPED_TRACE("replay with SLUICE_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto between = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  ScheduleOptions options = GrantsOptions();
  options.policy = GetParam();
  ScheduleDriver link(options);
  TimePoint now = At(0ms);
  std::vector<uint64_t> thinking;
  std::vector<uint64_t> in_flight;
  uint64_t submitted = 0;
  const auto take = [&](const ScheduleDriver::Words& words) {
    for (const std::string& word : words) {
      if (word.starts_with("stall")) continue;
      const bool asks = word.starts_with("send ") && GetParam() == SchedulePolicy::kGrants;
      const auto tag = std::stoull(word.substr(word.find(' ')));
      const bool early = asks && word.rfind(' ') != word.find(' ');
      (asks && !early ? thinking : in_flight).push_back(tag);
    }
    const LinkDemand demand = link.schedule().Demand(now);
    if (!words.empty()) {
      ASSERT_LE(demand.in_flight_bytes, demand.limit_bytes);
    }
  };
  const auto any_of = [&](std::vector<uint64_t>& calls) {
    std::swap(calls[between(0, std::ssize(calls) - 1)], calls.back());
    const uint64_t call = calls.back();
    calls.pop_back();
    return call;
  };
  for (int step = 0; step < 20'000; ++step) {
    now += std::chrono::microseconds(between(0, 1000));
    switch (between(0, 4)) {
      case 0:
        if (link.state().waiting_calls > 100) break;
        ++submitted;
        take(link.Submit(now, {between(0, kLink / 3)}));
        break;
      case 1:
        if (!in_flight.empty()) take(link.Finish(now, any_of(in_flight)));
        break;
      case 2:
        if (!thinking.empty()) take(link.Ready(now, any_of(thinking), between(1, kLink / 3)));
        break;
      case 3:
        take(link.Timer(now));
        break;
      default:
        take(Lend(link, now, {.bytes = between(0, kLink), .until = now + std::chrono::microseconds(between(0, 3000))}));
    }
  }
  EXPECT_GT(submitted, 200u);  // a call that is larger than most leases delays the others
  take(Lend(link, now, {.bytes = kLink}));
  while (link.state().blocks > 0) {
    ASSERT_FALSE(in_flight.empty() && thinking.empty());
    take(in_flight.empty() ? link.Ready(now, any_of(thinking), 1000) : link.Finish(now, any_of(in_flight)));
  }
}

INSTANTIATE_TEST_SUITE_P(, LeasesOfTheMoment, ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         [](const auto& info) { return std::string(SchedulePolicyName(info.param)); });

}  // namespace
}  // namespace sluice
