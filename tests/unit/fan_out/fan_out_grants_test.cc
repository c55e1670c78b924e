#include <atomic>
#include <chrono>

#include "sluice/fan_out.h"

#include "tests/unit/fan_out/fan_out_fixture.h"

namespace sluice {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;
using testing::Holds;
using testing::NameOf;
using testing::Says;
using testing::Script;
using testing::Seen;
using testing::SendsHeadersAndHolds;
using testing::Text;

// The responses that wait for a grant.
class FanOutGrantsTest : public testing::FanOutTest {};

INSTANTIATE_TEST_SUITE_P(By, FanOutGrantsTest, ::testing::Values(SchedulePolicy::kGrants), NameOf);

TEST_P(FanOutGrantsTest, HeadersThatAreSentEarlyDoNotMakeAResponseReady) {
  Start(2, FixedBudget());
  server(0).SetPlay(SendsHeadersAndHolds("late"));
  const auto result = fan_out_->Call(kUnary, Ask(1, {1}, kLargeResponse), Ignore(),
                                     {.timeout = absl::Minutes(5), .hedge_after = absl::Milliseconds(100)});
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.hedges_won, 1u) << "what is ready is not hedged";
  EXPECT_EQ(Metric("sluice_ready_seconds"), 1) << "the hedge's response";
  EXPECT_TRUE(server(0).Await([](const auto& counts) { return counts.cancelled == 1 && counts.open == 0; }));
}

TEST_P(FanOutGrantsTest, AnErrorDoesNotWaitForAGrant) {
  Start(2, FixedBudget());
  for (const bool early_headers : {false, true}) {
    LetGo();
    server(0).SetPlay([&](const Seen&) {
      return Script{.messages = {},
                    .status = {absl::StatusCode::kInternal, "as the test wants"},
                    .hold_before = 0,
                    .early_headers = early_headers};
    });
    const auto pending = CallAsync(Ask(1, {}, kLargeResponse), {.timeout = absl::Minutes(5)});
    ASSERT_TRUE(server(0).AwaitHolding(1));
    EXPECT_EQ(link_->State().ungranted_calls, 1);
    HoldBack();
    server(0).Release();
    ASSERT_TRUE(pending->Await());
    EXPECT_THAT(pending->result().status, HasCode(absl::StatusCode::kInternal));
    EXPECT_TRUE(AwaitIdle());
  }
}

// The trailers after an empty response do not wait, either.
TEST_P(FanOutGrantsTest, AnEmptyResponseDoesNotWaitForAGrant) {
  Start(1, FixedBudget());
  server(0).SetPlay([](const Seen&) { return Script{.messages = {""}, .hold_before = 0}; });
  const auto pending = CallAsync(Ask(1, {}, kLargeResponse), {.timeout = absl::Minutes(5)});
  ASSERT_TRUE(server(0).AwaitHolding(1));
  HoldBack();
  server(0).Release();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok()) << pending->result().status;
  EXPECT_EQ(pending->result().answered, 1u);
}

TEST_P(FanOutGrantsTest, AStreamBetweenItsMessagesHoldsNothing) {
  Start(1, FixedBudget());
  server(0).SetPlay([](const Seen&) {
    return Script{.messages = {testing::Wire("first"), testing::Wire("last")}, .hold_before = 1};
  });
  std::atomic<int> messages{0};
  const auto merge = [&](size_t, Text&&) {
    ++messages;
    return absl::OkStatus();
  };
  const auto pending = CallAsync(Ask(1, {}, 2000), {.timeout = absl::Minutes(5)}, merge, kStream);
  ASSERT_TRUE(server(0).AwaitHolding(1));
  ASSERT_TRUE(testing::Eventually([&] { return messages == 1; }));
  EXPECT_EQ(link_->State().in_flight_bytes, 0);
  server(0).Release();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok()) << pending->result().status;
}

TEST_P(FanOutGrantsTest, ResponsesThatAreHeldBackComeWhenThereIsRoomAgain) {
  Start(3, FixedBudget());
  const std::string large(100'000, 'x');
  for (size_t i = 0; i < 3; ++i) server(i).SetPlay(Holds(large));
  const auto pending = CallAsync(Ask(3, {}, kLargeResponse), {.timeout = absl::Minutes(5)});
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(server(i).AwaitHolding(1));
  HoldBack();
  for (size_t i = 0; i < 3; ++i) server(i).Release();
  ASSERT_TRUE(AwaitReady(3));
  EXPECT_FALSE(pending->ended());
  EXPECT_EQ(link_->State().in_flight_bytes, 0);
  LetGo();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok()) << pending->result().status;
  EXPECT_EQ(pending->result().answered, 3u);
  EXPECT_TRUE(AwaitIdle());
}

TEST_P(FanOutGrantsTest, ItsCallsAreInTheClassThatItNames) {
  Link::Options options = FixedBudget();
  options.schedule.classes = {{.name = "queries", .weight = 3}, {.name = "scan", .weight = 1}};
  Start(3, options, {.traffic_class = "scan"});
  ASSERT_THAT(fan_out_->Connect(), ::testing::IsEmpty());
  HoldBack();
  const auto scan = CallAsync(Ask(3), {.timeout = absl::Minutes(5)});
  const auto query = CallAsync(Ask(1), {.timeout = absl::Minutes(5), .traffic_class = "queries"});
  ASSERT_TRUE(AwaitState([](const ScheduleState& state) { return state.waiting_calls == 4; }));
  link_->Await([](LinkLoop& loop) {
    EXPECT_EQ(loop.schedule().ClassState(0).waiting_calls, 1);
    EXPECT_EQ(loop.schedule().ClassState(1).waiting_calls, 3);
  });
  LetGo();
  for (const auto* pending : {&scan, &query}) {
    ASSERT_TRUE((*pending)->Await());
    EXPECT_TRUE((*pending)->result().status.ok()) << (*pending)->result().status;
  }
  const auto refused = fan_out_->Call(kUnary, Ask(1), Ignore(), {.traffic_class = "batch"});
  EXPECT_THAT(refused.status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(refused.status.message(), "traffic_class: \"batch\" is not a class of the link, which has queries, scan");
}

// The worker is not to blame for a ready response that waits for the link.
class FanOutHeldResponseTest : public testing::FanOutTest {
 protected:
  // Starts a fan-out to server 0, with server 1 as its replica, and returns when the response is ready and held.
  std::unique_ptr<testing::Pending> AskAndHold(const FanOutOptions& options) {
    server(0).SetPlay(Holds("0"));
    auto pending = CallAsync(Ask(1, {1}, kLargeResponse), options);
    EXPECT_TRUE(server(0).AwaitHolding(1));
    HoldBack();
    server(0).Release();
    EXPECT_TRUE(AwaitReady(1));
    return pending;
  }
  // Returns after this time has passed on the link.
  void Pass(absl::Duration time) {
    const auto late = CallAsync(Ask(1), {.timeout = time});
    EXPECT_TRUE(late->Await());
    EXPECT_THAT(late->result().status, HasCode(absl::StatusCode::kDeadlineExceeded));
  }
  // Returns true if server 0 is asked before its replica.
  bool IsGood() {
    LetGo();
    server(0).SetPlay(Says({"0"}));
    const int requests = server(0).counts().requests;
    const auto result = fan_out_->Call(kUnary, Ask(1, {1}), Ignore());
    EXPECT_TRUE(result.status.ok()) << result.status;
    return server(0).counts().requests == requests + 1;
  }
};

INSTANTIATE_TEST_SUITE_P(By, FanOutHeldResponseTest, ::testing::Values(SchedulePolicy::kGrants), NameOf);

TEST_P(FanOutHeldResponseTest, AtTheDeadlineItsWorkerHasNotFailed) {
  Start(2, FixedBudget());
  const auto pending = AskAndHold({.timeout = absl::Seconds(1)});
  ASSERT_TRUE(pending->Await());
  EXPECT_THAT(pending->result().status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(pending->result().status.message()),
              HasSubstr("the response was ready and waited for the link's grant"));
  EXPECT_EQ(Metric("sluice_calls_total", "expired"), 1);
  EXPECT_EQ(Metric("sluice_timeouts_total", "queue_deadline"), 1);
  EXPECT_EQ(Metric("sluice_calls_total", "rpc_deadline"), 0);
  EXPECT_EQ(Metric("sluice_timeouts_total", "rpc_deadline"), 0);
  EXPECT_TRUE(IsGood());
}

TEST_P(FanOutHeldResponseTest, ItIsNotAskedForElsewhereAfterTheTimeOfAnAttempt) {
  Start(2, FixedBudget());
  // The request reaches the server, and the response becomes ready, within attempt_timeout.
  const auto pending = AskAndHold({.timeout = absl::Minutes(5), .attempt_timeout = absl::Seconds(1)});
  Pass(absl::Milliseconds(1500));
  EXPECT_FALSE(pending->ended());
  LetGo();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok()) << pending->result().status;
  EXPECT_EQ(pending->result().retries, 0u);
  EXPECT_EQ(server(1).counts().requests, 0);
  EXPECT_TRUE(IsGood());
}

// All of the response is granted, and it does not arrive: the time counts for the worker again.
TEST_P(FanOutHeldResponseTest, AGrantThatIsNotUsedIsAFailureOfItsWorker) {
  Start(2, FixedBudget());
  server(0).SetPlay(Holds("0"));
  const auto result = fan_out_->Call(kUnary, Ask(1, {1}, 10), Ignore(),
                                     {.timeout = absl::Minutes(5), .attempt_timeout = absl::Milliseconds(100)});
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.retries, 1u);
  EXPECT_FALSE(IsGood());
}

class FanOutHungWorkerTest : public testing::FanOutTest {};

INSTANTIATE_TEST_SUITE_P(By, FanOutHungWorkerTest, ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         NameOf);

// With k hung workers, a response waits for at most k + 1 stall timeouts, and for the responses ahead of it.
TEST_P(FanOutHungWorkerTest, DoesNotHoldUpTheLargeResponsesOfTheOthers) {
  constexpr auto kStall = std::chrono::seconds(1);
  constexpr int kHung = 2;
  Link::Options options = FixedBudget();
  options.schedule.stall_timeout = absl::FromChrono(kStall);
  Start(6, options);
  ASSERT_THAT(fan_out_->Connect(), ::testing::IsEmpty());
  for (size_t i = 0; i < 6; ++i) server(i).SetPlay(i < kHung ? Holds("never") : Says({std::string(200'000, 'x')}));
  std::atomic<int> merged = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto pending = CallAsync(Ask(6, {}, 200'000), {.timeout = absl::Minutes(5)}, [&](size_t, const Text&) {
    ++merged;
    return absl::OkStatus();
  });
  EXPECT_TRUE(testing::Eventually([&] { return merged == 4; }));
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took, (kHung + 1) * kStall + std::chrono::seconds(2));
  RecordProperty("milliseconds", static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
  EXPECT_FALSE(pending->ended());
  pending->call->Cancel();
  ASSERT_TRUE(pending->Await());
  EXPECT_EQ(pending->result().answered, 4u);
  EXPECT_TRUE(AwaitIdle());
}

}  // namespace
}  // namespace sluice
