#include "gtest/gtest.h"
#include "lib/scheduling/budget_control.h"
#include "tests/unit/scheduling/simulated_link.h"

// Tests which losses change the budget.
namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::kKiB;
using testing::Known;
using testing::LinkWithBuffer;
using testing::SimulatedLink;

TEST(DecideTest, AFewPacketsThatWereOvertakenAreNoLoss) {
  SimulatedLink link = LinkWithBuffer(64 * kKiB);
  link.overtaken_of_thousand = 3;
  link.Run(60s);
  EXPECT_EQ(link.budget(), 64 * kKiB);
}

TEST(DecideTest, ManyPacketsOutOfOrderAreATrial) {
  SimulatedLink link = LinkWithBuffer(64 * kKiB);
  link.overtaken_of_thousand = 30;
  link.Run(600ms);
  EXPECT_EQ(link.budget(), 32 * kKiB);
  link.Run(600s);
  EXPECT_EQ(link.budget(), 64 * kKiB) << "a smaller budget is worth no more";
  EXPECT_LE(link.decisions[static_cast<int>(BudgetDecision::kBackOff)], 7) << "trials become rarer";
}

// The worker has a bad cable, or its process pauses again and again.
TEST(DecideTest, LossesOfOneWorkerAmongManyAreItsOwn) {
  SimulatedLink link = LinkWithBuffer(64 * kKiB);
  link.bad_workers = 1;
  for (int look = 0; look < 10; ++look) EXPECT_EQ(link.Step(), BudgetDecision::kHold);
  link.Run(600s);
  EXPECT_EQ(link.budget(), 64 * kKiB);
}

TEST(DecideTest, LossesOfTwoWorkersAtATimeAreOfTheLink) {
  SimulatedLink link = LinkWithBuffer(64 * kKiB);
  link.bad_workers = 2;
  EXPECT_EQ(link.Step(), BudgetDecision::kBackOff);
  EXPECT_EQ(link.budget(), 32 * kKiB);
}

// There is no other evidence.
TEST(DecideTest, LossesOfTheOnlyWorkerAreOfTheLink) {
  SimulatedLink link = LinkWithBuffer(64 * kKiB);
  link.workers = link.bad_workers = 1;
  EXPECT_EQ(link.Step(), BudgetDecision::kBackOff);
}

// If two workers overflow a port, both lose packets within half a second or soon after. If only one of two loses, a
// smaller budget would cost the other, which has lost nothing. The schedule shrinks the share of the losing worker,
// since it is late.
TEST(DecideTest, LossesOfOneOfTwoWorkersAreItsOwn) {
  SimulatedLink link = LinkWithBuffer(64 * kKiB);
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
  BudgetObservation seen{.elapsed = 100ms, .answers = 10'000, .active_workers = 1000};
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

// One observation of 64 workers at 100 Mbit/s, whose port has just lost half of its buffer.
TEST(DecideTest, ALongTimeWithoutLossesHidesNoOverflow) {
  const BudgetBounds bounds = Known(64 * kKiB);
  std::chrono::steady_clock::time_point now{};
  BudgetState state = StartBudget(bounds, now);
  for (int look = 0; look < 36'000; ++look) {
    state = Decide(bounds, state,
                   {.now = now += 100ms, .elapsed = 100ms, .answers = 100, .packets = 700, .active_workers = 64})
                .state;
  }
  const BudgetObservation seen{.now = now += 100ms,
                               .elapsed = 100ms,
                               .answers = 22,
                               .packets = 154,
                               .active_workers = 44,
                               .out_of_order_losses = 12,
                               .worst_out_of_order_losses = 1};
  EXPECT_EQ(Decide(bounds, state, seen).decision, BudgetDecision::kBackOff);
}

// Responses are large, so each observation has one loss, each time of a different worker.
TEST(DecideTest, AnOverflowIsFoundInAFewResponses) {
  const BudgetBounds bounds = Known(64 * kKiB);
  std::chrono::steady_clock::time_point now{};
  BudgetState state = StartBudget(bounds, now);
  int looks = 0;
  for (; state.budget_bytes == bounds.start_bytes && looks < 100; ++looks) {
    const BudgetObservation seen{.now = now += 100ms,
                                 .elapsed = 100ms,
                                 .answers = 1,
                                 .packets = 7,
                                 .active_workers = 64,
                                 .out_of_order_losses = 1,
                                 .worst_out_of_order_losses = 1};
    state = Decide(bounds, state, seen).state;
  }
  EXPECT_EQ(looks, 7);
}

// Each observation has 20 responses of 7 packets, and packets of 0.7 % of all responses are overtaken. After a change,
// only few are counted.
TEST(DecideTest, ChanceInAFewResponsesIsNoLoss) {
  const BudgetBounds bounds = Known(64 * kKiB);
  std::chrono::steady_clock::time_point now{};
  std::mt19937 random(1);
  std::binomial_distribution<int64_t> overtaken(20, 0.007);
  for (int change = 0; change < 100; ++change) {
    BudgetState state = StartBudget(bounds, now);
    for (int look = 0; look < 10'000; ++look) {
      now += 100ms;
      const BudgetObservation seen{.now = now,
                                   .elapsed = 100ms,
                                   .answers = 20,
                                   .packets = 140,
                                   .active_workers = 64,
                                   .out_of_order_losses = overtaken(random)};
      const BudgetStep step = Decide(bounds, state, seen);
      ASSERT_EQ(step.decision, BudgetDecision::kHold) << "change " << change << ", look " << look;
      state = step.state;
    }
  }
}

// Three of a hundred responses have packets out of order, all on one path. That path hides no losses of other workers.
TEST(DecideTest, PacketsOutOfOrderOfOneWorkerAmongManyAreItsOwn) {
  const BudgetBounds bounds = Known(64 * kKiB);
  std::chrono::steady_clock::time_point now{};
  BudgetState state = StartBudget(bounds, now);
  int64_t worst = 0;
  const auto step = [&](int64_t active_workers, int64_t losses_of_others) {
    const BudgetObservation seen{.now = now += 100ms,
                                 .elapsed = 100ms,
                                 .answers = 100,
                                 .packets = 400,
                                 .active_workers = active_workers,
                                 .out_of_order_losses = 3 + losses_of_others,
                                 .worst_out_of_order_losses = 3 + (state.counted_since < now - 100ms ? worst : 0)};
    worst = seen.worst_out_of_order_losses;
    const BudgetStep made = Decide(bounds, state, seen);
    state = made.state;
    return made.decision;
  };
  for (int look = 0; look < 600; ++look) ASSERT_EQ(step(64, 0), BudgetDecision::kHold) << "look " << look;
  const BudgetState before = state;
  EXPECT_EQ(step(64, 10), BudgetDecision::kBackOff);
  state = before;
  worst = 0;
  int looks = 0;
  while (looks < 20 && step(1, 0) == BudgetDecision::kHold) ++looks;
  EXPECT_EQ(looks, 7) << "the only worker decides alone";
}

}  // namespace
}  // namespace sluice
