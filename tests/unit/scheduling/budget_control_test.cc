#include "lib/scheduling/budget_control.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/random_seed.h"
#include "tests/unit/scheduling/simulated_link.h"

namespace sluice {
namespace {

using std::chrono::nanoseconds;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using testing::kCapacity;
using testing::kKiB;
using testing::Known;
using testing::LinkWithBuffer;
using testing::SimulatedLink;
using testing::Unknown;

TEST(BudgetBoundsTest, RefusesWhatIsOutOfOrderAndNamesIt) {
  EXPECT_TRUE(Unknown().Validate().ok());
  BudgetBounds bounds = Unknown();
  bounds.floor_bytes = 0;
  EXPECT_THAT(std::string(bounds.Validate().message()), HasSubstr("floor_bytes: 0 is below 1"));
  bounds = Unknown();
  bounds.limit_bytes = 100;
  EXPECT_THAT(std::string(bounds.Validate().message()), HasSubstr("limit_bytes: 100 is below floor_bytes: 12288"));
  bounds = Unknown();
  bounds.start_bytes = 1;
  EXPECT_THAT(std::string(bounds.Validate().message()), HasSubstr("start_bytes: 1 is outside of 12288 to 4194304"));
  bounds = Unknown();
  bounds.reference_bytes = 1 << 30;
  EXPECT_THAT(std::string(bounds.Validate().message()), HasSubstr("reference_bytes"));
  bounds = Unknown();
  bounds.capacity_bytes_per_second = std::nan("");
  EXPECT_THAT(std::string(bounds.Validate().message()), HasSubstr("capacity_bytes_per_second"));
}

// The budget may exceed the buffer.
SimulatedLink LinkWithStatedBuffer(int64_t buffer_bytes) {
  BudgetBounds bounds = Known(buffer_bytes);
  bounds.limit_bytes = 4096 * kKiB;
  bounds.buffer_known = true;
  SimulatedLink link(bounds);
  link.buffer_bytes = buffer_bytes;
  return link;
}

TEST(DecideTest, AKnownBufferThatHoldsIsLeftAlone) {
  SimulatedLink link(Known(32 * kKiB));
  link.Run(600s);
  EXPECT_EQ(link.budget(), 32 * kKiB);
  EXPECT_EQ(link.decisions[static_cast<int>(BudgetDecision::kHold)], 6000);
}

TEST(DecideTest, AnUnknownBudgetGrowsUntilTheLinkIsBusy) {
  SimulatedLink link(Unknown());
  link.buffer_bytes = 1024 * kKiB;
  link.Run(2s);
  EXPECT_EQ(link.budget(), 32 * kKiB);
  link.Run(600s);
  EXPECT_EQ(link.budget(), 32 * kKiB);
  EXPECT_EQ(link.TakeLossySteps(), 0);
}

TEST(DecideTest, WhatDoesNotMakeTheLinkBusierIsGivenBack) {
  SimulatedLink link(Unknown());
  link.buffer_bytes = 1024 * kKiB;
  link.most_share = 0.5;
  link.Run(3s);
  EXPECT_EQ(link.budget(), 16 * kKiB);
  EXPECT_EQ(link.decisions[static_cast<int>(BudgetDecision::kGrow)], 1);
  EXPECT_EQ(link.decisions[static_cast<int>(BudgetDecision::kGiveBack)], 1);
}

TEST(DecideTest, AMeasurementThatABusyHostSpoilsDecidesNothing) {
  SimulatedLink link(Unknown());
  link.buffer_bytes = 1024 * kKiB;
  while (link.Step() != BudgetDecision::kGrow) {
  }
  link.noise = 0.5;
  link.Run(1s);
  EXPECT_EQ(link.budget(), 32 * kKiB);
  link.noise = 0;
  link.Run(10s);
  EXPECT_EQ(link.budget(), 32 * kKiB);
  EXPECT_EQ(link.decisions[static_cast<int>(BudgetDecision::kGiveBack)], 0);
}

TEST(DecideTest, ATrialThatLosesGoesBackAtOnceAndIsRemembered) {
  SimulatedLink link(Unknown());
  link.buffer_bytes = 20 * kKiB;
  link.Run(3s);
  EXPECT_EQ(link.budget(), 16 * kKiB);
  EXPECT_EQ(link.state().ceiling_bytes, 32 * kKiB);
  EXPECT_LE(link.TakeLossySteps(), 2);
}

TEST(DecideTest, LossesWithoutATrialHalveTheBudget) {
  SimulatedLink link = LinkWithBuffer(64 * kKiB);
  link.Run(1s);
  link.buffer_bytes = 32 * kKiB;
  EXPECT_EQ(link.Step(), BudgetDecision::kBackOff);
  EXPECT_EQ(link.budget(), 32 * kKiB);
  link.Run(1s);
  EXPECT_EQ(link.budget(), 32 * kKiB);
  EXPECT_EQ(link.state().ceiling_bytes, 64 * kKiB) << "half of it loses nothing";
}

// Some of them end in timeouts now and then, which are too rare to be compared.
TEST(DecideTest, LossesThatTcpRepairsAreAvoidedByASmallerBudgetThatCarriesAsMuch) {
  SimulatedLink link = LinkWithStatedBuffer(48 * kKiB);
  link.repairs = true;
  link.Run(1s);
  link.buffer_bytes = 38 * kKiB;
  link.Run(4s);
  EXPECT_EQ(link.budget(), 24 * kKiB);
  link.Run(120s);
  EXPECT_GE(link.budget(), 30 * kKiB);
  EXPECT_LE(link.budget(), 38 * kKiB);
}

// The port of a stated buffer has an eighth of it. Packets that were lost are lost again, and time out again, for a
// while.
TEST(DecideTest, TimeoutsOfALargerBudgetAreNoneOfTheSmallerOne) {
  for (const double most_share : {1.0, 0.5}) {
    SimulatedLink link = LinkWithStatedBuffer(256 * kKiB);
    link.buffer_bytes = 32 * kKiB;
    link.echo = 1300ms;
    link.most_share = most_share;
    link.Run(10s);
    EXPECT_LE(link.budget(), 32 * kKiB);
    link.TakeLossySteps();
    link.Run(60s);
    EXPECT_LE(link.TakeLossySteps(), 10);
    EXPECT_LE(link.budget(), 32 * kKiB);
    EXPECT_GE(link.budget(), 16 * kKiB);
  }
}

// Clients ask for a while and then for nothing, and calls hardly wait.
TEST(DecideTest, TimeWithoutCallsSaysNothingOfABudget) {
  SimulatedLink link = LinkWithStatedBuffer(64 * kKiB);
  link.backlogged = 0.05;
  const auto ask_now_and_then = [&](int times) {
    for (int i = 0; i < times; ++i) {
      link.Run(800ms);
      link.Idle(i % 3 * 1s);
    }
  };
  ask_now_and_then(3);
  link.buffer_bytes = 16 * kKiB;
  ask_now_and_then(20);
  link.TakeLossySteps();
  ask_now_and_then(20);
  EXPECT_LE(link.budget(), 16 * kKiB);
  EXPECT_LE(link.TakeLossySteps(), 2);
}

// Losses from before the last decision remain visible for a while after it.
TEST(DecideTest, EchoesOfALossAreNotAnsweredTwice) {
  SimulatedLink link(Known(64 * kKiB));
  link.buffer_bytes = 14 * kKiB;
  EXPECT_EQ(link.Step(), BudgetDecision::kBackOff);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(link.Step(), BudgetDecision::kHold) << i;
  link.Run(3s);
  EXPECT_EQ(link.budget(), 12 * kKiB);
}

TEST(DecideTest, GrowsAgainWhenTheBufferIsGivenBack) {
  SimulatedLink link = LinkWithBuffer(64 * kKiB);
  link.Run(1s);
  link.buffer_bytes = 32 * kKiB;
  link.Run(60s);
  EXPECT_LE(link.budget(), 32 * kKiB);
  EXPECT_LE(link.TakeLossySteps(), 5);
  link.buffer_bytes = 64 * kKiB;
  link.Run(120s);
  EXPECT_EQ(link.budget(), 64 * kKiB);
  EXPECT_EQ(link.state().ceiling_bytes, 0);
  EXPECT_EQ(link.TakeLossySteps(), 0);
}

// The cost of probing for a larger buffer: two lossy steps for each probe, and probes become rarer.
TEST(DecideTest, ProbesRarelyAndEverMoreRarely) {
  SimulatedLink link(Known(64 * kKiB));
  link.buffer_bytes = 40 * kKiB;
  link.Run(60s);
  link.TakeLossySteps();
  link.Run(3600s);
  const int64_t first_hour = link.TakeLossySteps();
  EXPECT_LE(first_hour, 40);
  link.Run(3600s);
  EXPECT_LE(link.TakeLossySteps(), std::max<int64_t>(first_hour, 12));
  EXPECT_LE(link.budget(), 40 * kKiB);
  EXPECT_GE(link.budget(), 28 * kKiB);
}

TEST(DecideTest, AShortBacklogNowAndThenCountsByItsTime) {
  SimulatedLink link(Unknown());
  link.buffer_bytes = 1024 * kKiB;
  link.backlogged = 0.05;
  link.Run(60s);
  EXPECT_GE(link.budget(), 32 * kKiB);
  SimulatedLink lossy = LinkWithBuffer(64 * kKiB);
  lossy.backlogged = 0.05;
  lossy.bad_workers = 2;
  lossy.Run(10s);
  lossy.bad_workers = 0;
  lossy.Run(3600s);
  EXPECT_EQ(lossy.budget(), 64 * kKiB);
}

TEST(DecideTest, NothingIsConcludedWhileNobodyWaits) {
  SimulatedLink link(Unknown());
  link.buffer_bytes = 1024 * kKiB;
  link.backlogged = 0;
  link.Run(60s);
  EXPECT_EQ(link.budget(), 16 * kKiB);
}

TEST(DecideTest, LossesThatNoBudgetAvoidsLeaveTheBudget) {
  SimulatedLink link(Known(64 * kKiB));
  link.buffer_bytes = 0;
  link.Run(60s);
  EXPECT_EQ(link.budget(), 64 * kKiB);
}

TEST(DecideTest, BesideABulkFlowTheBudgetTakesItsPartOfThePort) {
  SimulatedLink link = LinkWithStatedBuffer(48 * kKiB);
  link.Run(10s);
  EXPECT_EQ(link.budget(), 48 * kKiB);
  link.neighbour_bytes = 48 * kKiB;
  link.Run(3s);
  EXPECT_GE(link.budget(), 48 * kKiB);
  link.Run(5s);
  EXPECT_GE(link.Share(link.budget()), 0.66);
  link.neighbour_bytes = 0;
  link.Run(2s);
  EXPECT_LE(link.budget(), 48 * kKiB) << "the neighbour has left";
  link.Run(60s);
  EXPECT_EQ(link.budget(), 48 * kKiB);
}

TEST(DecideTest, ANeighbourThatComesBackMeetsTheBudgetOfBefore) {
  SimulatedLink link = LinkWithStatedBuffer(48 * kKiB);
  link.neighbour_bytes = 48 * kKiB;
  link.Run(10s);
  const int64_t beside = link.budget();
  EXPECT_GT(beside, 48 * kKiB);
  for (int visit = 0; visit < 10; ++visit) {
    link.neighbour_bytes = 0;
    link.Run(5s);
    EXPECT_EQ(link.budget(), 48 * kKiB) << "visit " << visit;
    link.neighbour_bytes = 48 * kKiB;
    link.Run(500ms);
    EXPECT_EQ(link.budget(), beside) << "visit " << visit;
    link.Run(4500ms);
  }
}

// A trial of a smaller budget may end well by chance.
TEST(DecideTest, ASmallerBudgetThatLeavesTheLinkIdleIsNotKept) {
  SimulatedLink link = LinkWithStatedBuffer(48 * kKiB);
  link.bad_workers = 2;
  link.Step();
  EXPECT_EQ(link.budget(), 24 * kKiB);
  link.bad_workers = 0;
  link.Run(1500ms);
  EXPECT_EQ(link.budget(), 24 * kKiB);
  link.most_share = 0.5;
  link.Run(5s);
  EXPECT_EQ(link.budget(), 48 * kKiB);
}

TEST(DecideTest, AnIdleLinkDoesNotExceedItsStatedBuffer) {
  SimulatedLink link = LinkWithStatedBuffer(48 * kKiB);
  link.most_share = 0.3;
  link.Run(600s);
  EXPECT_EQ(link.budget(), 48 * kKiB);
  EXPECT_EQ(link.TakeLossySteps(), 0);
}

TEST(DecideTest, AFixedBudgetIsNeverChanged) {
  BudgetBounds bounds = Known(64 * kKiB);
  bounds.floor_bytes = bounds.limit_bytes;
  SimulatedLink link(bounds);
  link.buffer_bytes = 1;
  link.Run(60s);
  EXPECT_EQ(link.budget(), 64 * kKiB);
}

// At any buffer, noise and load there are few losses, and the budget is not much smaller than possible.
TEST(DecideTest, FindsItsPlaceAtRandomLinks) {
  const RandomSeed seed = TakeRandomSeed();
  ASSERT_FALSE(HasFailure());
  std::mt19937 random(seed.value);
  for (int i = 0; i < 200; ++i) {
    SimulatedLink link(Unknown());
    link.Seed(random());
    link.buffer_bytes = std::uniform_int_distribution<int64_t>(16 * kKiB, 256 * kKiB)(random);
    link.pipe_bytes = std::uniform_int_distribution<int64_t>(kKiB / 2, 32 * kKiB)(random);
    link.noise = std::uniform_real_distribution<double>(0, 0.2)(random);
    SCOPED_TRACE(::testing::Message() << "SLUICE_SEED=" << seed.value << ", link " << i << ": buffer "
                                      << link.buffer_bytes << ", pipe " << link.pipe_bytes << ", noise " << link.noise);
    link.Run(30s);
    link.TakeLossySteps();
    link.Run(600s);
    EXPECT_LE(link.TakeLossySteps(), 24);
    // A larger budget may be on trial at the end.
    const bool on_trial = link.state().trial == BudgetTrial::kLarger;
    EXPECT_LE(on_trial ? link.state().tried_from_bytes : link.budget(), link.buffer_bytes);
    const double possible = std::min(link.Share(link.buffer_bytes), 0.95);
    if (link.noise < 0.02) {
      EXPECT_GE(link.Share(link.budget()), 0.85 * possible);
    }
  }
}

}  // namespace
}  // namespace sluice
