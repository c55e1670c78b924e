#include "lib/fan_out/fan_out_tally.h"

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Next = FanOutTally::Next;

// Ask i has worker i, then those replicas.
FanOutTally Tally(FanOutTally::Limits limits, std::vector<std::vector<size_t>> replicas) {
  for (size_t i = 0; i < replicas.size(); ++i) replicas[i].insert(replicas[i].begin(), i);
  return FanOutTally(limits, std::move(replicas));
}

// Sends the first attempt of every ask: attempt i is that of ask i.
FanOutTally Sent(FanOutTally::Limits limits, std::vector<std::vector<size_t>> replicas) {
  FanOutTally tally = Tally(limits, std::move(replicas));
  for (size_t ask = 0; ask < tally.asked(); ++ask) EXPECT_EQ(tally.NextAttempt(ask, /*hedge=*/false), ask);
  return tally;
}

void Answer(FanOutTally& tally, size_t attempt) {
  ASSERT_TRUE(tally.Claim(attempt));
  tally.OnAnswered(attempt);
}

TEST(FanOutTallyTest, AsksTheWorkersInTheirOrderAndCountsRetriesAndHedges) {
  FanOutTally tally = Sent({}, {{7, 8}});
  EXPECT_EQ(tally.attempt(0).worker, 0u);
  EXPECT_EQ(tally.retries() + tally.hedges(), 0u);
  EXPECT_EQ(tally.NextAttempt(0, /*hedge=*/true), 1u);
  EXPECT_EQ(tally.attempt(1).worker, 7u);
  EXPECT_TRUE(tally.attempt(1).hedge);
  EXPECT_EQ(tally.NextAttempt(0, /*hedge=*/false), 2u);
  EXPECT_EQ(tally.attempt(2).worker, 8u);
  EXPECT_EQ(tally.NextAttempt(0, /*hedge=*/false), std::nullopt) << "no worker is left";
  EXPECT_EQ(tally.retries(), 1u);
  EXPECT_EQ(tally.hedges(), 1u);
  EXPECT_EQ(tally.attempts(), 3u);
}

TEST(FanOutTallyTest, AnAnsweredAskHasNoMoreAttempts) {
  FanOutTally tally = Sent({}, {{7}});
  Answer(tally, 0);
  EXPECT_EQ(tally.NextAttempt(0, /*hedge=*/false), std::nullopt);
  EXPECT_FALSE(tally.Wanted(0));
}

TEST(FanOutTallyTest, AHedgeMayHelpOnlyWhoIsWaitedFor) {
  FanOutTally tally = Sent({}, {{7, 8}, {}, {9}, {9}});
  EXPECT_TRUE(tally.MayHedge(0));
  EXPECT_FALSE(tally.MayHedge(1)) << "it has no replica";
  tally.OnReady(2);
  EXPECT_FALSE(tally.MayHedge(2)) << "its answer only waits for us";
  Answer(tally, 3);
  EXPECT_FALSE(tally.MayHedge(3)) << "it has answered";
}

TEST(FanOutTallyTest, NoHedgeOfAHedgeWhereARivalIsReady) {
  FanOutTally tally = Sent({}, {{7, 8}});
  const size_t hedge = *tally.NextAttempt(0, /*hedge=*/true);
  EXPECT_TRUE(tally.MayHedge(hedge));
  tally.OnReady(0);
  EXPECT_FALSE(tally.MayHedge(hedge));
  EXPECT_EQ(tally.OnFailed(0), Next::kNothing);
  EXPECT_TRUE(tally.MayHedge(hedge)) << "who was ready has failed";
}

TEST(FanOutTallyTest, NewsOfAnAttemptThatHasEndedAreIgnored) {
  FanOutTally tally = Sent({}, {{7, 8}});
  const size_t hedge = *tally.NextAttempt(0, /*hedge=*/true);
  EXPECT_EQ(tally.OnFailed(0), Next::kNothing);
  tally.OnReady(0);
  EXPECT_TRUE(tally.MayHedge(hedge)) << "nobody is ready";
}

TEST(FanOutTallyTest, TheFirstToClaimIsTheOneThatCounts) {
  FanOutTally tally = Sent({}, {{7}});
  const size_t hedge = *tally.NextAttempt(0, /*hedge=*/true);
  EXPECT_TRUE(tally.Wanted(0));
  EXPECT_TRUE(tally.Claim(hedge));
  EXPECT_TRUE(tally.Claim(hedge)) << "each message of a stream claims";
  EXPECT_TRUE(tally.Claimed(hedge));
  EXPECT_FALSE(tally.Claim(0));
  EXPECT_FALSE(tally.Claimed(0));
  EXPECT_FALSE(tally.Wanted(0));
  EXPECT_THAT(tally.OpenRivals(hedge), ElementsAre(0));
  tally.OnAnswered(hedge);
  EXPECT_EQ(tally.OnFailed(0), Next::kNothing) << "it has lost, and was cancelled";
  EXPECT_THAT(tally.OpenRivals(hedge), IsEmpty());
  EXPECT_EQ(tally.hedges_won(), 1u);
  EXPECT_TRUE(tally.complete());
}

TEST(FanOutTallyTest, APrimaryThatWinsLeavesTheHedgeLost) {
  FanOutTally tally = Sent({}, {{7}});
  const size_t hedge = *tally.NextAttempt(0, /*hedge=*/true);
  Answer(tally, 0);
  tally.OnDropped(hedge);
  EXPECT_EQ(tally.hedges_won(), 0u);
  EXPECT_EQ(tally.answered(), 1u);
}

TEST(FanOutTallyTest, RivalsAreThoseOfTheSameAsk) {
  FanOutTally tally = Sent({}, {{7, 8}, {7, 8}});
  const size_t first = *tally.NextAttempt(0, /*hedge=*/true);
  const size_t other = *tally.NextAttempt(1, /*hedge=*/true);
  EXPECT_THAT(tally.OpenRivals(0), ElementsAre(first));
  EXPECT_THAT(tally.OpenRivals(other), ElementsAre(1));
}

TEST(FanOutTallyTest, AFailureIsRetriedUntilNoWorkerIsLeft) {
  FanOutTally tally = Sent({.fail_limit = 0}, {{7}});
  EXPECT_EQ(tally.OnFailed(0), Next::kRetry);
  EXPECT_FALSE(tally.too_many_failures());
  const size_t retry = *tally.NextAttempt(0, /*hedge=*/false);
  EXPECT_EQ(tally.OnFailed(retry), Next::kAskFailed);
  EXPECT_EQ(tally.failed(), 1u);
  EXPECT_TRUE(tally.too_many_failures());
}

TEST(FanOutTallyTest, AFailureWaitsForTheRivalThatIsUnderWay) {
  FanOutTally tally = Sent({}, {{7, 8}});
  const size_t hedge = *tally.NextAttempt(0, /*hedge=*/true);
  EXPECT_EQ(tally.OnFailed(0), Next::kNothing);
  EXPECT_EQ(tally.OnFailed(hedge), Next::kRetry);
  Answer(tally, *tally.NextAttempt(0, /*hedge=*/false));
  EXPECT_TRUE(tally.complete());
  EXPECT_EQ(tally.failed(), 0u);
}

TEST(FanOutTallyTest, WhatHasDeliveredAMessageIsNotReplaced) {
  FanOutTally tally = Sent({}, {{7}});
  ASSERT_TRUE(tally.Claim(0));
  EXPECT_EQ(tally.OnFailed(0), Next::kAskFailed);
  EXPECT_EQ(tally.failed(), 1u);
}

TEST(FanOutTallyTest, GivesUpOnRequest) {
  FanOutTally tally = Sent({}, {{7}});
  EXPECT_EQ(tally.OnFailed(0), Next::kRetry);
  tally.GiveUp(0);
  EXPECT_EQ(tally.failed(), 1u);
  EXPECT_EQ(tally.NextAttempt(0, /*hedge=*/false), std::nullopt);
}

TEST(FanOutTallyTest, EnoughIsTheQuorum) {
  FanOutTally tally = Sent({.success_quorum = 2}, {{}, {}, {}});
  Answer(tally, 0);
  EXPECT_FALSE(tally.enough());
  Answer(tally, 2);
  EXPECT_TRUE(tally.enough());
  EXPECT_FALSE(tally.complete());
}

TEST(FanOutTallyTest, WithoutAQuorumNothingIsEnoughUntilAllHaveEnded) {
  FanOutTally tally = Sent({.fail_limit = 1}, {{}, {}});
  Answer(tally, 0);
  EXPECT_FALSE(tally.enough());
  EXPECT_FALSE(tally.complete());
  EXPECT_EQ(tally.OnFailed(1), Next::kAskFailed);
  EXPECT_FALSE(tally.too_many_failures());
  EXPECT_TRUE(tally.complete());
}

TEST(FanOutTallyTest, AQuorumThatCannotComeAnyMoreIsTooManyFailures) {
  FanOutTally tally = Sent({.fail_limit = 3, .success_quorum = 2}, {{}, {}, {}});
  EXPECT_EQ(tally.OnFailed(0), Next::kAskFailed);
  EXPECT_FALSE(tally.too_many_failures()) << "two are left";
  EXPECT_EQ(tally.OnFailed(1), Next::kAskFailed);
  EXPECT_TRUE(tally.too_many_failures());
}

TEST(FanOutTallyTest, TheFailLimitHoldsBesideAQuorumThatCanStillCome) {
  FanOutTally tally = Sent({.fail_limit = 0, .success_quorum = 1}, {{}, {}, {}});
  EXPECT_EQ(tally.OnFailed(0), Next::kAskFailed);
  EXPECT_TRUE(tally.too_many_failures());
}

TEST(FanOutTallyTest, NobodyAskedIsComplete) {
  EXPECT_TRUE(Tally({}, {}).complete());
}

// Any order of events, and everybody is counted once.
TEST(FanOutTallyTest, EveryAskEndsOnceWhateverHappens) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random); };
  for (int round = 0; round < 300; ++round) {
    std::vector<std::vector<size_t>> replicas(1 + draw(5));
    for (auto& list : replicas) {
      for (size_t worker = 100; worker < 100 + draw(4); ++worker) list.push_back(worker);
    }
    const size_t asked = replicas.size();
    FanOutTally tally = Sent({.fail_limit = asked}, std::move(replicas));
    std::vector<size_t> open;
    for (size_t i = 0; i < tally.attempts(); ++i) open.push_back(i);
    while (!open.empty()) {
      const size_t at = draw(open.size());
      const size_t attempt = open[at];
      const size_t ask = tally.attempt(attempt).ask;
      if (draw(3) == 0 && tally.MayHedge(attempt)) {
        open.push_back(*tally.NextAttempt(ask, /*hedge=*/true));
        continue;
      }
      if (draw(3) == 0) {
        if (!tally.attempt(attempt).ready) tally.OnReady(attempt);
        continue;
      }
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
      if (draw(2) == 0 && tally.Claim(attempt)) {
        tally.OnAnswered(attempt);
      } else if (tally.OnFailed(attempt) == Next::kRetry) {
        open.push_back(*tally.NextAttempt(ask, /*hedge=*/false));
      }
    }
    EXPECT_TRUE(tally.complete());
    EXPECT_EQ(tally.attempts(), tally.asked() + tally.retries() + tally.hedges());
    EXPECT_LE(tally.hedges_won(), tally.hedges());
    EXPECT_FALSE(tally.too_many_failures());
  }
}

}  // namespace
}  // namespace sluice
