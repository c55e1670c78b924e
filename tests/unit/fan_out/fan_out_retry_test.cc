#include <chrono>

#include "sluice/fan_out.h"

#include "tests/unit/fan_out/fan_out_fixture.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::Fails;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::Holds;
using testing::NameOf;
using testing::Text;

// The failures that are retried, and the maximum number of retries.
class FanOutRetryTest : public testing::FanOutTest {
 protected:
  // Starts servers without a history: a server that has failed is not asked first.
  void StartAnew(size_t servers) {
    fan_out_.reset();
    link_.reset();
    servers_.clear();
    Start(servers);
  }
};

INSTANTIATE_TEST_SUITE_P(By, FanOutRetryTest, ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         NameOf);

TEST_P(FanOutRetryTest, AStatusThatIsNotListedFailsAtOnce) {
  for (const auto code : {absl::StatusCode::kInternal, absl::StatusCode::kResourceExhausted}) {
    StartAnew(2);
    server(0).SetPlay(Fails(code));
    const auto result = fan_out_->Call(kUnary, Ask(1, {1}), Ignore());
    EXPECT_THAT(result.status, HasCode(code));
    EXPECT_EQ(result.retries, 0u);
    EXPECT_EQ(server(1).counts().requests, 0);
  }
}

TEST_P(FanOutRetryTest, TheListMayBeAnotherOne) {
  const FanOutOptions options = {.retry_on = {absl::StatusCode::kInternal, absl::StatusCode::kAborted}};
  for (const auto code : {absl::StatusCode::kInternal, absl::StatusCode::kAborted}) {
    StartAnew(2);
    server(0).SetPlay(Fails(code));
    const auto result = fan_out_->Call(kUnary, Ask(1, {1}), Ignore(), options);
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.retries, 1u);
  }
  StartAnew(2);
  server(0).SetPlay(Fails(absl::StatusCode::kUnavailable));
  const auto result = fan_out_->Call(kUnary, Ask(1, {1}), Ignore(), options);
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(server(1).counts().requests, 0);
}

TEST_P(FanOutRetryTest, AnEmptyListRetriesNothing) {
  Start(2);
  server(0).SetPlay(Fails(absl::StatusCode::kUnavailable));
  const auto result = fan_out_->Call(kUnary, Ask(1, {1}), Ignore(), {.retry_on = {}});
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(server(1).counts().requests, 0);
}

TEST_P(FanOutRetryTest, TheRatioIsACap) {
  Start(21);
  for (size_t i = 0; i < 20; ++i) server(i).SetPlay(Fails(absl::StatusCode::kUnavailable));
  const auto result = fan_out_->Call(kUnary, Ask(20, {20}), Ignore(), {.fail_limit = 20, .retry_ratio = 0.1});
  EXPECT_TRUE(result.status.ok()) << result.status;
  // Eight tokens at the start, and twenty tenths: 10 retries.
  EXPECT_EQ(result.retries, 10u);
  EXPECT_EQ(result.answered, 10u);
  EXPECT_EQ(result.failures.size(), 10u);
  EXPECT_EQ(server(20).counts().requests, 10);
  for (const WorkerFailure& failure : result.failures) {
    EXPECT_THAT(failure.status, HasCode(absl::StatusCode::kUnavailable));
    EXPECT_EQ(failure.worker, failure.primary);
  }
  const auto more = fan_out_->Call(kUnary, Ask(20, {20}), Ignore(), {.fail_limit = 20, .retry_ratio = 0});
  EXPECT_EQ(more.retries, 0u) << "all were spent";
}

TEST_P(FanOutRetryTest, AnAttemptThatTakesTooLongIsMadeElsewhere) {
  Start(2);
  server(0).SetPlay(Holds("late"));
  std::vector<std::string> merged;
  const auto result = fan_out_->Call(kUnary, Ask(1, {1}),
                                     [&](size_t, const Text& text) {
                                       merged.push_back(text.value());
                                       return absl::OkStatus();
                                     },
                                     {.timeout = absl::Minutes(5), .attempt_timeout = absl::Milliseconds(100)});
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_THAT(merged, ElementsAre("1"));
  EXPECT_EQ(result.retries, 1u);
  EXPECT_EQ(result.hedges, 0u);
  EXPECT_TRUE(server(0).Await([](const auto& counts) { return counts.cancelled == 1 && counts.open == 0; }));
}

TEST_P(FanOutRetryTest, TheLastAttemptThatTakesTooLongFails) {
  Start(2);
  for (size_t i : {0, 1}) {
    server(i).SetPlay(Holds("late"));
  }
  const auto result = fan_out_->Call(kUnary, Ask(1, {1}), Ignore(),
                                     {.timeout = absl::Minutes(5), .attempt_timeout = absl::Milliseconds(50)});
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("attempt_timeout"));
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0].worker, 1u);
  EXPECT_TRUE(AwaitIdle());
}

// The worker is not to blame while its request waits for the link.
TEST_P(FanOutRetryTest, TheTimeOfAnAttemptBeginsWhenItsRequestIsSent) {
  Start(2, FixedBudget());
  ASSERT_THAT(fan_out_->Connect(), ::testing::IsEmpty());
  HoldBack();
  const auto pending = CallAsync(Ask(1, {1}), {.timeout = absl::Minutes(5), .attempt_timeout = absl::Seconds(20)});
  const auto hedged =
      CallAsync(Ask(1, {1}), {.timeout = absl::Milliseconds(100), .attempt_timeout = absl::Milliseconds(1)});
  ASSERT_TRUE(hedged->Await());
  EXPECT_EQ(hedged->result().retries, 0u);
  EXPECT_THAT(hedged->result().status, HasCode(absl::StatusCode::kDeadlineExceeded));
  LetGo();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok()) << pending->result().status;
  EXPECT_EQ(pending->result().retries, 0u);
}

}  // namespace
}  // namespace sluice
