#include <atomic>
#include <chrono>
#include <thread>

#include "sluice/fan_out.h"

#include "tests/unit/fan_out/fan_out_fixture.h"

namespace sluice {
namespace {

using testing::ExpectConsistent;
using testing::HasCode;
using testing::Holds;
using testing::NameOf;
using testing::Pending;
using testing::Says;
using testing::Script;
using testing::Seen;
using testing::Text;
using testing::Wire;

// Far more than the 10 ms of the design, because the machine may be busy.
constexpr auto kSoon = std::chrono::seconds(5);

// One call that is cancelled, or reaches its deadline, in one of its states. The budget may be full.
class FanOutCancelTest : public testing::FanOutTest {
 protected:
  // Asks only the last server.
  FanOut::Map<Text> AskLast() {
    return [last = servers_.size() - 1](size_t worker) -> std::optional<sluice::Ask<Text>> {
      if (worker != last) return std::nullopt;
      return sluice::Ask<Text>(Text(), kLargeResponse);
    };
  }

  // Cancels one call in the state that `start` has brought it into, and lets a second call reach its deadline in that
  // state. Records how long both take in the test's properties.
  void ExpectPromptEnds(const std::function<std::unique_ptr<Pending>(absl::Duration timeout)>& start) {
    const auto cancelled = start(absl::Minutes(5));
    ASSERT_FALSE(HasFatalFailure());
    const auto cancelled_at = std::chrono::steady_clock::now();
    cancelled->call->Cancel();
    ASSERT_TRUE(cancelled->Await());
    Record("cancel_microseconds", std::chrono::steady_clock::now() - cancelled_at);
    EXPECT_THAT(cancelled->result().status, HasCode(absl::StatusCode::kCancelled));
    EXPECT_EQ(cancelled->result().cancelled, cancelled->result().asked);

    const auto started = std::chrono::steady_clock::now();
    const absl::Duration timeout = absl::Milliseconds(500);
    const auto late = start(timeout);
    ASSERT_TRUE(late->Await());
    Record("deadline_microseconds", std::chrono::steady_clock::now() - started - absl::ToChronoNanoseconds(timeout));
    EXPECT_THAT(late->result().status, HasCode(absl::StatusCode::kDeadlineExceeded));
    ExpectConsistent(late->result());
    EXPECT_EQ(Metric("sluice_blocks_total", "cancelled"), 1);
    EXPECT_EQ(Metric("sluice_blocks_total", "deadline"), 1);
  }

  static void Record(const std::string& what, std::chrono::steady_clock::duration time) {
    EXPECT_LT(time, kSoon) << what;
    RecordProperty(what, std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(time).count()));
  }
};

INSTANTIATE_TEST_SUITE_P(By, FanOutCancelTest, ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         NameOf);

TEST_P(FanOutCancelTest, WhatWaitsEndsAtOnceAndIsNotSent) {
  Start(2, FixedBudget());
  ASSERT_THAT(fan_out_->Connect(), ::testing::IsEmpty());
  HoldBack();
  ExpectPromptEnds([&](absl::Duration timeout) {
    auto pending = CallAsync(AskLast(), {.timeout = timeout});
    EXPECT_TRUE(AwaitState([](const ScheduleState& state) { return state.waiting_calls == 1; }));
    return pending;
  });
  LetGo();
  EXPECT_TRUE(AwaitIdle());
  // If one of the cancelled requests had left, the server would have received it before this request.
  EXPECT_TRUE(fan_out_->Call(kUnary, AskLast(), Ignore()).status.ok());
  EXPECT_EQ(server(1).counts().requests, 1);
}

TEST_P(FanOutCancelTest, WhatWasSentEndsAtOnceAndAtItsServer) {
  Start(1);
  server(0).SetPlay(Holds("late"));
  int sent = 0;
  ExpectPromptEnds([&](absl::Duration timeout) {
    auto pending = CallAsync(AskLast(), {.timeout = timeout});
    ++sent;
    EXPECT_TRUE(server(0).Await([&](const auto& counts) { return counts.requests == sent; }));
    return pending;
  });
  EXPECT_TRUE(server(0).Await([](const auto& counts) { return counts.cancelled == 2 && counts.open == 0; }));
  EXPECT_TRUE(AwaitIdle());
}

class FanOutCancelGrantsTest : public FanOutCancelTest {
 protected:
  // Starts a call to server 0. Its large response is ready, but not granted.
  std::unique_ptr<Pending> StartAndHoldBack(absl::Duration timeout, const Method<Text, Text>& method) {
    LetGo();
    server(0).SetPlay(Holds(std::string(kLargeResponse, 'x')));
    auto pending = CallAsync(AskLast(), {.timeout = timeout}, Ignore(), method);
    EXPECT_TRUE(server(0).AwaitHolding(1));
    HoldBack();
    server(0).Release();
    EXPECT_TRUE(AwaitReady(++ready_));
    const ScheduleState state = link_->State();
    EXPECT_EQ(state.in_flight_calls, 0) << "none is granted";
    EXPECT_EQ(state.ungranted_calls, 1);
    return pending;
  }

  double ready_ = 0;
};
INSTANTIATE_TEST_SUITE_P(By, FanOutCancelGrantsTest, ::testing::Values(SchedulePolicy::kGrants), NameOf);

TEST_P(FanOutCancelGrantsTest, WhatIsReadyAndHeldBackEndsAtOnceAndAtItsServer) {
  Start(1, FixedBudget());
  ExpectPromptEnds([&](absl::Duration timeout) { return StartAndHoldBack(timeout, kUnary); });
  EXPECT_TRUE(server(0).Await([](const auto& counts) { return counts.cancelled == 2 && counts.open == 0; }));
  LetGo();
  EXPECT_TRUE(AwaitIdle());
}

TEST_P(FanOutCancelGrantsTest, WhatIsGrantedEndsAtOnceAndAtItsServer) {
  Start(1, FixedBudget());
  server(0).SetPlay(Holds("never"));
  ExpectPromptEnds([&](absl::Duration timeout) {
    EXPECT_TRUE(AwaitIdle()) << "the one before has drained";
    auto pending = CallAsync(Ask(1, {}, 1000), {.timeout = timeout});
    EXPECT_TRUE(AwaitState([](const ScheduleState& state) { return state.in_flight_calls == 1; })) << "granted";
    EXPECT_TRUE(server(0).AwaitHolding(1));
    return pending;
  });
  EXPECT_TRUE(server(0).Await([](const auto& counts) { return counts.cancelled == 2 && counts.open == 0; }));
  EXPECT_TRUE(AwaitIdle());
}

TEST_P(FanOutCancelGrantsTest, AHeldStreamEndsAtOnce) {
  Start(1, FixedBudget());
  ExpectPromptEnds([&](absl::Duration timeout) { return StartAndHoldBack(timeout, kStream); });
  EXPECT_TRUE(server(0).Await([](const auto& counts) { return counts.cancelled == 2 && counts.open == 0; }));
  LetGo();
  EXPECT_TRUE(AwaitIdle());
}

TEST_P(FanOutCancelTest, AStreamInTheMiddleEndsAtOnce) {
  Start(1);
  server(0).SetPlay([](const Seen&) { return Script{.messages = {Wire("a"), Wire("b")}, .hold_before = 1}; });
  std::atomic<int> merged = 0;
  int expected = 0;
  ExpectPromptEnds([&](absl::Duration timeout) {
    auto pending = CallAsync(
        AskLast(), {.timeout = timeout},
        [&](size_t, const Text&) {
          ++merged;
          return absl::OkStatus();
        },
        kStream);
    ++expected;
    EXPECT_TRUE(testing::Eventually([&] { return merged == expected; }));
    return pending;
  });
}

TEST_P(FanOutCancelTest, WhoHasNotRespondedAtTheDeadlineHasFailed) {
  Start(2);
  server(1).SetPlay(Holds("late"));
  const auto [result, responses] =
      fan_out_->Collect(kUnary, Ask(2), {.timeout = absl::Milliseconds(700), .fail_limit = 1});
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(responses[0].size(), 1u);
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_THAT(result.failures[0].status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(Metric("sluice_blocks_total", "partial"), 1);
}

TEST_P(FanOutCancelTest, ARetryDoesNotOutliveTheDeadline) {
  Start(2);
  for (size_t i : {0, 1}) {
    server(i).SetPlay(Holds("late"));
  }
  const auto result = fan_out_->Call(kUnary, Ask(1, {1}), Ignore(), {.timeout = absl::Milliseconds(300)});
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(server(1).counts().requests, 0);
}

TEST_P(FanOutCancelTest, CancelFromMerge) {
  Start(4);
  Pending pending;
  std::atomic<int> merged = 0;
  testing::Notification started;
  pending.call = fan_out_->CallAsync(
      kUnary, Ask(4),
      [&](size_t, const Text&) {
        EXPECT_TRUE(started.Await());
        ++merged;
        pending.call->Cancel();
        return absl::OkStatus();
      },
      {}, pending.Done());
  started.Notify();
  ASSERT_TRUE(pending.Await());
  EXPECT_THAT(pending.result().status, HasCode(absl::StatusCode::kCancelled));
  EXPECT_EQ(merged, 1);
  EXPECT_EQ(pending.result().answered, 1u);
  EXPECT_EQ(pending.result().cancelled, 3u);
}

TEST_P(FanOutCancelTest, CancelTwiceAndAfterTheEnd) {
  Start(1);
  const auto ended = CallAsync(Ask(1));
  ASSERT_TRUE(ended->Await());
  ended->call->Cancel();
  EXPECT_TRUE(ended->result().status.ok());
  server(0).SetPlay(Holds("late"));
  const auto pending = CallAsync(Ask(1));
  pending->call->Cancel();
  pending->call->Cancel();
  ASSERT_TRUE(pending->Await());
  EXPECT_THAT(pending->result().status, HasCode(absl::StatusCode::kCancelled));
}

TEST_P(FanOutCancelTest, DroppingTheHandleCancelsNothing) {
  Start(1);
  server(0).SetPlay(Holds("late"));
  const auto pending = CallAsync(Ask(1));
  pending->call.reset();
  ASSERT_TRUE(server(0).AwaitHolding(1));
  server(0).Release();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok());
}

TEST_P(FanOutCancelTest, ACallFromDone) {
  Start(2);
  Pending second;
  fan_out_->CallAsync(kUnary, Ask(2), Ignore(), {},
                      [&](const FanOutResult&) { fan_out_->CallAsync(kUnary, Ask(2), Ignore(), {}, second.Done()); });
  ASSERT_TRUE(second.Await());
  EXPECT_TRUE(second.result().status.ok());
  EXPECT_EQ(second.result().answered, 2u);
}

// A caller may keep the handle in the captures of `done`.
TEST_P(FanOutCancelTest, WhatDoneHoldsIsFreedWithTheEnd) {
  Start(1);
  const auto held = std::make_shared<std::shared_ptr<FanOutCall>>();
  const std::weak_ptr<std::shared_ptr<FanOutCall>> watched = held;
  Pending pending;
  *held = fan_out_->CallAsync(
      kUnary, Ask(1), [held](size_t, const Text&) { return absl::OkStatus(); }, {},
      [held, done = pending.Done()](FanOutResult result) { done(std::move(result)); });
  ASSERT_TRUE(pending.Await());
  fan_out_.reset();
  EXPECT_EQ(watched.use_count(), 1);
}

TEST_P(FanOutCancelTest, TheDestructorCancelsWhatIsUnderWayAndWaitsForIt) {
  Start(3);
  for (size_t i : {1, 2}) {
    server(i).SetPlay(Holds("late"));
  }
  std::atomic<int> merged = 0;
  // Cancelled, not failed, although all of them may fail.
  const auto pending = CallAsync(Ask(3), {.fail_limit = 3}, [&](size_t, const Text&) {
    ++merged;
    return absl::OkStatus();
  });
  ASSERT_TRUE(testing::Eventually([&] { return merged == 1; }));
  fan_out_.reset();
  ASSERT_TRUE(pending->ended());
  EXPECT_THAT(pending->result().status, HasCode(absl::StatusCode::kCancelled));
  EXPECT_EQ(pending->result().status.message(), "the FanOut was destroyed");
  EXPECT_EQ(pending->result().answered, 1u);
  EXPECT_EQ(pending->result().cancelled, 2u);
  for (size_t i : {1, 2}) {
    EXPECT_TRUE(server(i).Await([](const auto& counts) { return counts.open == 0; }));
  }
  EXPECT_TRUE(AwaitIdle());
}

// A worker accepts a limited number of resets. The other responses may still arrive after the caller has gone.
TEST_P(FanOutCancelTest, TheLinkMayEndWhileResponsesThatNobodyNeedsAreOut) {
  constexpr int kCalls = 150;
  Link::Options options = FixedBudget();
  options.schedule.profile.buffer_bytes = 4 << 20;
  options.schedule.budget_bytes = options.schedule.profile.buffer_bytes;
  Start(1, options);
  server(0).SetPlay(Holds("late"));
  std::vector<std::unique_ptr<Pending>> pending;
  for (int i = 0; i < kCalls; ++i) pending.push_back(CallAsync(AskLast(), {.timeout = absl::Minutes(5)}));
  ASSERT_TRUE(server(0).AwaitHolding(kCalls));
  for (const auto& cancelled : pending) cancelled->call->Cancel();
  for (const auto& cancelled : pending) ASSERT_TRUE(cancelled->Await());
  EXPECT_GT(link_->State().in_flight_calls + link_->State().ungranted_calls, 0) << "not all were reset";
  fan_out_.reset();
  link_.reset();
  EXPECT_TRUE(server(0).Await([](const auto& counts) { return counts.open == 0; }));
}

// The thread that cancels may still be in the link when the last call ends, which lets the destructor continue.
TEST_P(FanOutCancelTest, CancelRacesWithTheDestructorsOfTheFanOutAndItsLink) {
  StartServers(4);
  for (size_t i = 0; i < 4; ++i) server(i).SetPlay(Holds("late"));
  for (int round = 0; round < 30; ++round) {
    MakeFanOut();
    const auto pending = CallAsync(Ask(3, {3}), {.hedge_after = absl::Milliseconds(1)});
    std::atomic<bool> go = false;
    std::thread canceller([&] {
      while (!go) std::this_thread::yield();
      pending->call->Cancel();
    });
    go = true;
    fan_out_.reset();
    link_.reset();
    EXPECT_TRUE(pending->ended());
    EXPECT_THAT(pending->result().status, HasCode(absl::StatusCode::kCancelled));
    canceller.join();
  }
}

}  // namespace
}  // namespace sluice
