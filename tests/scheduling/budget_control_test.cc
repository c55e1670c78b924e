#include "sluice/budget_control.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::nanoseconds;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

constexpr double kCapacity = 12.5e6;  // 100 Mbit/s
constexpr int64_t kKiB = 1024;

// Nobody knows the buffer.
BudgetBounds Unknown() {
  return {.floor_bytes = 12 * kKiB,
          .start_bytes = 16 * kKiB,
          .reference_bytes = 16 * kKiB,
          .limit_bytes = 4096 * kKiB,
          .capacity_bytes_per_second = kCapacity};
}

BudgetBounds Known(int64_t buffer_bytes) {
  return {.floor_bytes = 12 * kKiB,
          .start_bytes = buffer_bytes,
          .reference_bytes = buffer_bytes,
          .limit_bytes = buffer_bytes,
          .capacity_bytes_per_second = kCapacity};
}

// A link in a loop: a port that drops when the budget is larger than its buffer, and is the busier the larger the
// budget is: with b bytes in flight, b bytes come each round trip and the time that they take on the link.
class SimulatedLink {
 public:
  explicit SimulatedLink(const BudgetBounds& bounds) : bounds_(bounds), state_(StartBudget(bounds, now_)) {}

  int64_t buffer_bytes = 32 * kKiB;
  int64_t pipe_bytes = 3 * kKiB / 2;  // that a round trip takes on the link
  double most_share = 1;              // that workers can use
  int64_t workers = 64;
  int64_t bad_workers = 0;            // that lose at any budget
  double backlogged = 1;              // share of the time in which calls wait for the budget
  double noise = 0;                   // of a rate, as a share: what a busy machine takes away
  int64_t overtaken_of_thousand = 0;  // answers of which packets are out of order, though nothing is lost
  int64_t decisions[5] = {};

  BudgetDecision Step(nanoseconds elapsed = 100ms) {
    now_ += elapsed;
    const double seconds = std::chrono::duration<double>(elapsed).count();
    const double rate = kCapacity * Share(state_.budget_bytes) * (1 - noise * uniform_(random_));
    const auto answers = static_cast<int64_t>(rate * seconds / 11'000);
    BudgetObservation seen{.now = now_, .active_workers = workers};
    seen.backlogged_time = std::chrono::duration_cast<nanoseconds>(backlogged * elapsed);
    seen.backlogged_bytes = std::llround(backlogged * rate * seconds);
    seen.answers = std::llround(backlogged * static_cast<double>(answers));
    seen.out_of_order_losses = seen.answers * overtaken_of_thousand / 1000;
    seen.lossy_workers = bad_workers;
    if (backlogged > 0 && state_.budget_bytes > buffer_bytes) {
      seen.lossy_workers = std::min<int64_t>(workers, 2);
      seen.backlogged_bytes /= 2;
      ++lossy_steps_;
    }
    const BudgetStep step = Decide(bounds_, state_, seen);
    EXPECT_EQ(step.decision == BudgetDecision::kHold, step.state.budget_bytes == state_.budget_bytes);
    EXPECT_EQ(step.reason.empty(), step.decision == BudgetDecision::kHold);
    EXPECT_GE(step.state.budget_bytes, bounds_.floor_bytes);
    EXPECT_LE(step.state.budget_bytes, bounds_.limit_bytes);
    state_ = step.state;
    ++decisions[static_cast<int>(step.decision)];
    return step.decision;
  }

  // Of the link that a budget uses.
  double Share(int64_t budget_bytes) const {
    return std::min(most_share, static_cast<double>(budget_bytes) / static_cast<double>(budget_bytes + pipe_bytes));
  }

  void Run(nanoseconds time) {
    for (const auto end = now_ + time; now_ < end;) Step();
  }

  // Steps in which something was lost, since the last call.
  int64_t TakeLossySteps() { return std::exchange(lossy_steps_, 0); }
  int64_t budget() const { return state_.budget_bytes; }
  const BudgetState& state() const { return state_; }
  void Seed(uint32_t seed) { random_.seed(seed); }

 private:
  const BudgetBounds bounds_;
  std::chrono::steady_clock::time_point now_{};
  BudgetState state_;
  int64_t lossy_steps_ = 0;
  std::mt19937 random_{1};
  std::uniform_real_distribution<double> uniform_{0, 1};
};

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
  SimulatedLink link(Known(64 * kKiB));
  link.buffer_bytes = 64 * kKiB;
  link.Run(1s);
  link.buffer_bytes = 32 * kKiB;
  EXPECT_EQ(link.Step(), BudgetDecision::kBackOff);
  EXPECT_EQ(link.budget(), 32 * kKiB);
  EXPECT_EQ(link.state().ceiling_bytes, 64 * kKiB);
}

// What was lost before the last decision shows for a while after it.
TEST(DecideTest, EchoesOfALossAreNotAnsweredTwice) {
  SimulatedLink link(Known(64 * kKiB));
  link.buffer_bytes = 8 * kKiB;
  EXPECT_EQ(link.Step(), BudgetDecision::kBackOff);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(link.Step(), BudgetDecision::kHold) << i;
  EXPECT_EQ(link.Step(), BudgetDecision::kBackOff);
  EXPECT_EQ(link.budget(), 16 * kKiB);
}

TEST(DecideTest, GrowsAgainWhenTheBufferIsGivenBack) {
  SimulatedLink link(Known(64 * kKiB));
  link.buffer_bytes = 64 * kKiB;
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

// The price of looking whether the buffer is back: two looks lossy for each probe, and fewer and fewer probes.
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
  SimulatedLink lossy(Known(64 * kKiB));
  lossy.buffer_bytes = 64 * kKiB;
  lossy.backlogged = 0.05;
  lossy.bad_workers = 2;
  lossy.Run(10s);
  EXPECT_EQ(lossy.budget(), 12 * kKiB);
  lossy.bad_workers = 0;
  lossy.Run(3600s);
  EXPECT_EQ(lossy.budget(), 64 * kKiB) << "recovers";
}

TEST(DecideTest, NothingIsConcludedWhileNobodyWaits) {
  SimulatedLink link(Unknown());
  link.buffer_bytes = 1024 * kKiB;
  link.backlogged = 0;
  link.Run(60s);
  EXPECT_EQ(link.budget(), 16 * kKiB);
}

TEST(DecideTest, AFewPacketsThatWereOvertakenAreNoLoss) {
  SimulatedLink link(Known(64 * kKiB));
  link.buffer_bytes = 64 * kKiB;
  link.overtaken_of_thousand = 9;
  link.Run(60s);
  EXPECT_EQ(link.budget(), 64 * kKiB);
}

TEST(DecideTest, ManyPacketsOutOfOrderAreALoss) {
  SimulatedLink link(Known(64 * kKiB));
  link.buffer_bytes = 64 * kKiB;
  link.overtaken_of_thousand = 30;
  link.Run(500ms);
  EXPECT_EQ(link.budget(), 32 * kKiB);
}

// A bad cable, or a process that stands still again and again.
TEST(DecideTest, LossesOfOneWorkerAmongManyAreItsOwn) {
  SimulatedLink link(Known(64 * kKiB));
  link.buffer_bytes = 64 * kKiB;
  link.bad_workers = 1;
  for (int look = 0; look < 10; ++look) EXPECT_EQ(link.Step(), BudgetDecision::kHold);
  link.Run(600s);
  EXPECT_EQ(link.budget(), 64 * kKiB);
}

TEST(DecideTest, LossesOfTwoWorkersAtATimeAreOfTheLink) {
  SimulatedLink link(Known(64 * kKiB));
  link.buffer_bytes = 64 * kKiB;
  link.bad_workers = 2;
  EXPECT_EQ(link.Step(), BudgetDecision::kBackOff);
  EXPECT_EQ(link.budget(), 32 * kKiB);
}

// It is all that there is to go by.
TEST(DecideTest, LossesOfTheOnlyWorkerAreOfTheLink) {
  SimulatedLink link(Known(64 * kKiB));
  link.buffer_bytes = 64 * kKiB;
  link.workers = link.bad_workers = 1;
  EXPECT_EQ(link.Step(), BudgetDecision::kBackOff);
}

// Two that overflow a port lose both, within half a second or soon after. If only one of two loses, a smaller budget
// would cost the other, which has lost nothing; the share of the one that loses shrinks in the schedule, since it is
// late.
TEST(DecideTest, LossesOfOneOfTwoWorkersAreItsOwn) {
  SimulatedLink link(Known(64 * kKiB));
  link.buffer_bytes = 64 * kKiB;
  link.workers = 2;
  link.bad_workers = 1;
  link.Run(60s);
  EXPECT_EQ(link.budget(), 64 * kKiB);
  link.bad_workers = 2;
  EXPECT_EQ(link.Step(), BudgetDecision::kBackOff);
}

TEST(DecideTest, AFewLossesAmongVeryManyResponsesAreRandom) {
  const BudgetBounds bounds = Known(64 * kKiB);
  std::chrono::steady_clock::time_point now{};
  BudgetState state = StartBudget(bounds, now);
  BudgetObservation seen{.answers = 10'000, .active_workers = 1000};
  const auto step = [&](int64_t lossy_workers) {
    seen.now = now += 100ms;
    seen.lossy_workers = lossy_workers;
    const BudgetStep made = Decide(bounds, state, seen);
    state = made.state;
    return made.decision;
  };
  for (int look = 0; look < 10; ++look) EXPECT_EQ(step(0), BudgetDecision::kHold);
  for (int look = 0; look < 100; ++look) EXPECT_EQ(step(5), BudgetDecision::kHold);
  EXPECT_EQ(step(100), BudgetDecision::kBackOff);
}

// Twenty responses a look, of which three in a thousand are overtaken: after each change the first looks are few.
TEST(DecideTest, ChanceInAFewResponsesIsNoLoss) {
  const BudgetBounds bounds = Known(64 * kKiB);
  std::chrono::steady_clock::time_point now{};
  std::mt19937 random(1);
  std::binomial_distribution<int64_t> overtaken(20, 0.003);
  for (int change = 0; change < 100; ++change) {
    BudgetState state = StartBudget(bounds, now);
    for (int look = 0; look < 10'000; ++look) {
      now += 100ms;
      const BudgetObservation seen{
          .now = now, .answers = 20, .active_workers = 64, .out_of_order_losses = overtaken(random)};
      const BudgetStep step = Decide(bounds, state, seen);
      ASSERT_EQ(step.decision, BudgetDecision::kHold) << "change " << change << ", look " << look;
      state = step.state;
    }
  }
}

// Three of a hundred responses of the link, but all of one path.
TEST(DecideTest, PacketsOutOfOrderOfOneWorkerAmongManyAreItsOwn) {
  const BudgetBounds bounds = Known(64 * kKiB);
  std::chrono::steady_clock::time_point now{};
  BudgetState state = StartBudget(bounds, now);
  BudgetObservation seen{.answers = 100, .active_workers = 64, .out_of_order_losses = 3};
  for (int look = 0; look < 600; ++look) {
    seen.now = now += 100ms;
    seen.worst_out_of_order_losses += 3;
    const BudgetStep step = Decide(bounds, state, seen);
    ASSERT_EQ(step.decision, BudgetDecision::kHold) << "look " << look;
    state = step.state;
  }
  seen.now = now += 100ms;
  seen.active_workers = 1;
  EXPECT_EQ(Decide(bounds, state, seen).decision, BudgetDecision::kBackOff);
}

TEST(DecideTest, StaysAtTheFloorHoweverMuchIsLost) {
  SimulatedLink link(Known(64 * kKiB));
  link.buffer_bytes = 0;
  link.Run(60s);
  EXPECT_EQ(link.budget(), 12 * kKiB);
}

TEST(DecideTest, AFixedBudgetIsNeverChanged) {
  BudgetBounds bounds = Known(64 * kKiB);
  bounds.floor_bytes = bounds.limit_bytes;
  SimulatedLink link(bounds);
  link.buffer_bytes = 1;
  link.Run(60s);
  EXPECT_EQ(link.budget(), 64 * kKiB);
}

// Whatever the buffer, the noise and the load: no storm of losses, and no budget that is much smaller than it could be.
TEST(DecideTest, FindsItsPlaceAtRandomLinks) {
  std::random_device device;
  const uint32_t seed = device();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 200; ++i) {
    SimulatedLink link(Unknown());
    link.Seed(random());
    link.buffer_bytes = std::uniform_int_distribution<int64_t>(16 * kKiB, 256 * kKiB)(random);
    link.pipe_bytes = std::uniform_int_distribution<int64_t>(kKiB / 2, 32 * kKiB)(random);
    link.noise = std::uniform_real_distribution<double>(0, 0.2)(random);
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ", link " << i << ": buffer " << link.buffer_bytes
                                      << ", pipe " << link.pipe_bytes << ", noise " << link.noise);
    link.Run(30s);
    link.TakeLossySteps();
    link.Run(600s);
    EXPECT_LE(link.TakeLossySteps(), 24);
    EXPECT_LE(link.budget(), link.buffer_bytes);
    const double possible = std::min(link.Share(link.buffer_bytes), 0.95);
    if (link.noise < 0.02) {
      EXPECT_GE(link.Share(link.budget()), 0.85 * possible);
    }
  }
}

}  // namespace
}  // namespace sluice
