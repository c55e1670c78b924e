#include <optional>

#include "sluice/fan_out.h"

#include "tests/unit/fan_out/fan_out_fixture.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::ExpectConsistent;
using testing::Fails;
using testing::HasCode;
using testing::Holds;
using testing::NameOf;
using testing::Says;
using testing::Text;
using testing::TextOf;

class FanOutHedgeTest : public testing::FanOutTest {};

INSTANTIATE_TEST_SUITE_P(By, FanOutHedgeTest, ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         NameOf);

TEST_P(FanOutHedgeTest, ASlowWorkerGetsARivalAndTheLoserIsCancelledAtItsServer) {
  Start(3);
  server(0).SetPlay(Holds("late"));
  std::vector<std::string> merged;
  const auto result = fan_out_->Call(kUnary, Ask(1, {2}),
                                     [&](size_t worker, const Text& text) {
                                       EXPECT_EQ(worker, 0u);
                                       merged.push_back(text.value());
                                       return absl::OkStatus();
                                     },
                                     {.hedge_after = absl::Milliseconds(20)});
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_THAT(merged, ElementsAre("2"));
  EXPECT_EQ(result.hedges, 1u);
  EXPECT_EQ(result.hedges_won, 1u);
  EXPECT_EQ(result.retries, 0u);
  EXPECT_EQ(result.answered, 1u);
  EXPECT_TRUE(server(0).Await([](const auto& counts) { return counts.cancelled == 1 && counts.open == 0; }));
  EXPECT_EQ(Metric("sluice_hedges_total", "won"), 1);
  EXPECT_TRUE(AwaitIdle());
}

TEST_P(FanOutHedgeTest, TheFirstToRespondWinsAlsoWhenItIsTheSlowOne) {
  Start(2);
  server(0).SetPlay(Holds("late"));
  server(1).SetPlay(Holds("later"));
  std::string merged;
  const auto pending = CallAsync(Ask(1, {1}), {.hedge_after = absl::Milliseconds(20)}, [&](size_t, const Text& text) {
    merged += text.value();
    return absl::OkStatus();
  });
  ASSERT_TRUE(server(1).AwaitHolding(1));
  server(0).Release();
  ASSERT_TRUE(pending->Await());
  EXPECT_EQ(merged, "late");
  EXPECT_EQ(pending->result().hedges, 1u);
  EXPECT_EQ(pending->result().hedges_won, 0u);
  EXPECT_TRUE(server(1).Await([](const auto& counts) { return counts.cancelled == 1 && counts.open == 0; }));
  EXPECT_EQ(Metric("sluice_hedges_total", "lost"), 1);
}

TEST_P(FanOutHedgeTest, AHedgeThatIsSlowGetsARivalToo) {
  Start(3);
  server(0).SetPlay(Holds("late"));
  server(1).SetPlay(Holds("later"));
  const auto result = fan_out_->Call(kUnary, Ask(1, {1, 2}), Ignore(), {.hedge_after = absl::Milliseconds(20)});
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.hedges, 2u);
  EXPECT_EQ(result.hedges_won, 1u);
}

TEST_P(FanOutHedgeTest, AFailedHedgeLeavesTheFirstOneToRespond) {
  Start(2);
  server(0).SetPlay(Holds("late"));
  server(1).SetPlay(Fails(absl::StatusCode::kInternal));
  const auto pending = CallAsync(Ask(1, {1}), {.hedge_after = absl::Milliseconds(20)});
  ASSERT_TRUE(server(1).Await([](const auto& counts) { return counts.requests == 1 && counts.open == 0; }));
  EXPECT_FALSE(pending->ended());
  server(0).Release();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok()) << pending->result().status;
  EXPECT_EQ(pending->result().hedges_won, 0u);
}

// The rival of an attempt is cancelled only when the response of the attempt counts.
TEST_P(FanOutHedgeTest, AResponseThatIsRefusedLeavesItsRivalToRespond) {
  Start(2);
  server(0).SetPlay(Holds("late"));
  server(1).SetPlay(Holds("bad"));
  const auto pending = CallAsync(Ask(1, {1}), {.hedge_after = absl::Milliseconds(20)}, [](size_t, const Text& text) {
    return text.value() == "bad" ? absl::DataLossError("bad") : absl::OkStatus();
  });
  ASSERT_TRUE(server(1).AwaitHolding(1));
  server(1).Release();
  ASSERT_TRUE(server(1).Await([](const auto& counts) { return counts.open == 0; }));
  server(0).Release();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok()) << pending->result().status;
  EXPECT_EQ(pending->result().retries, 0u);
}

TEST_P(FanOutHedgeTest, AQuantileHedgesNothingBeforeItHasSeenSome) {
  Start(9);
  const FanOutOptions options = {.hedge_after_quantile = 0.5, .hedge_ratio = 1};
  EXPECT_EQ(fan_out_->Call(kUnary, Ask(8, {8}), Ignore(), options).hedges, 0u) << "there is no history";
  server(0).SetPlay(Holds("late"));
  const auto result = fan_out_->Call(kUnary, Ask(1, {8}), Ignore(), options);
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.hedges, 1u) << "eight responses say how long it takes";
  EXPECT_EQ(result.hedges_won, 1u);
}

TEST_P(FanOutHedgeTest, TheRatioIsACap) {
  Start(11);
  for (size_t i = 0; i < 10; ++i) server(i).SetPlay(Holds("late"));
  const FanOutOptions options = {.hedge_after = absl::Milliseconds(20), .hedge_ratio = 0.01};
  const auto pending = CallAsync(Ask(10, {10}), options);
  // Eight tokens at the start, and ten hundredths: 8 hedges.
  ASSERT_TRUE(testing::Eventually([&] { return Metric("sluice_hedges_total", "refused") == 2; }));
  for (size_t i = 0; i < 10; ++i) server(i).Release();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok()) << pending->result().status;
  EXPECT_EQ(pending->result().hedges, 8u);
  EXPECT_LE(server(10).counts().requests, 8);
}

TEST_P(FanOutHedgeTest, ARatioOfZeroHedgesNothing) {
  Start(3);
  server(0).SetPlay(Holds("late"));
  const auto none = CallAsync(Ask(1, {2}), {.hedge_after = absl::Milliseconds(1), .hedge_ratio = 0});
  ASSERT_TRUE(server(0).AwaitHolding(1));
  // Sent later, and hedged: the hedge time of the first call is then over.
  server(1).SetPlay(Holds("late"));
  const auto some = CallAsync(
      [](size_t worker) -> std::optional<sluice::Ask<Text>> {
        if (worker != 1) return std::nullopt;
        return sluice::Ask<Text>(TextOf("?"), 10, {2});
      },
      {.hedge_after = absl::Milliseconds(1)});
  ASSERT_TRUE(some->Await());
  EXPECT_EQ(server(2).counts().requests, 1);
  server(0).Release();
  ASSERT_TRUE(none->Await());
  EXPECT_EQ(none->result().hedges, 0u);
}

TEST_P(FanOutHedgeTest, NoHedgeAfterTheEndOfItsFanOut) {
  Start(2);
  for (int round = 0; round < 50; ++round) {
    const auto result = fan_out_->Call(
        kUnary, Ask(1, {1}), Ignore(),
        {.hedge_after = absl::Microseconds(200 * (round % 10)) + absl::Nanoseconds(1), .hedge_ratio = 1});
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.answered, 1u);
    ExpectConsistent(result);
  }
  EXPECT_TRUE(AwaitIdle());
}

TEST_P(FanOutHedgeTest, AHandleOutlivesTheLinkWithATimerThatWasSet) {
  Start(2);
  server(0).SetPlay(Holds("late"));
  const auto pending = CallAsync(Ask(1, {1}), {.hedge_after = absl::Hours(1)});
  ASSERT_TRUE(server(0).AwaitHolding(1));
  fan_out_.reset();
  link_.reset();
  ASSERT_TRUE(pending->ended());
  EXPECT_THAT(pending->result().status, HasCode(absl::StatusCode::kCancelled));
  pending->call->Cancel();
}

class FanOutHedgeGrantsTest : public FanOutHedgeTest {};
INSTANTIATE_TEST_SUITE_P(By, FanOutHedgeGrantsTest, ::testing::Values(SchedulePolicy::kGrants), NameOf);

// A replica cannot speed up a response that only waits for its grant.
TEST_P(FanOutHedgeGrantsTest, WhatIsReadyIsNotHedged) {
  Start(3, FixedBudget());
  ASSERT_THAT(fan_out_->Connect(), ::testing::IsEmpty()) << "nothing but the hedge waits later";
  server(0).SetPlay(Holds(std::string(kLargeResponse, 'x')));
  server(1).SetPlay(Holds("late"));
  const auto pending = CallAsync(Ask(2, {2}, kLargeResponse), {.hedge_after = absl::Milliseconds(500)});
  ASSERT_TRUE(server(0).AwaitHolding(1));
  ASSERT_TRUE(server(1).AwaitHolding(1));
  HoldBack();
  server(0).Release();
  ASSERT_TRUE(AwaitReady(1));
  // The second request was sent after the first. When the hedge of the second waits, the hedge time of the first is
  // over.
  ASSERT_TRUE(AwaitState([](const ScheduleState& state) { return state.waiting_calls > 0; }));
  EXPECT_EQ(link_->State().waiting_calls, 1);
  LetGo();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok()) << pending->result().status;
  EXPECT_EQ(pending->result().hedges, 1u);
  EXPECT_EQ(server(2).counts().requests, 1);
}

TEST_P(FanOutHedgeGrantsTest, AHedgeIsChargedToTheBudget) {
  Start(2, FixedBudget());
  server(0).SetPlay(Holds("late"));
  server(1).SetPlay(Holds(std::string(kLargeResponse, 'x')));
  const auto hedged = CallAsync(Ask(1, {1}, kLargeResponse), {.hedge_after = absl::Milliseconds(20)});
  ASSERT_TRUE(server(1).AwaitHolding(1));
  HoldBack();
  server(1).Release();
  ASSERT_TRUE(AwaitReady(1)) << "the hedge is";
  EXPECT_EQ(link_->State().ungranted_calls, 2);
  EXPECT_FALSE(hedged->ended());
  LetGo();
  ASSERT_TRUE(hedged->Await());
  EXPECT_EQ(hedged->result().hedges_won, 1u);
  EXPECT_EQ(hedged->result().response_bytes,
            static_cast<int64_t>(testing::Wire(std::string(kLargeResponse, 'x')).size()));
}

}  // namespace
}  // namespace sluice
