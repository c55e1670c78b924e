#include <atomic>
#include <thread>

#include "sluice/fan_out.h"

#include "tests/unit/fan_out/fan_out_fixture.h"

namespace sluice {
namespace {

using testing::HasCode;
using testing::Holds;
using testing::NameOf;
using testing::Pending;
using testing::Text;
using testing::Way;

// The threads that callbacks run on, and the calls that they may delay.
class FanOutCallbacksTest : public testing::FanOutTest {
 protected:
  std::thread::id LinkThread() {
    std::thread::id id;
    link_->Await([&](LinkLoop&) { id = std::this_thread::get_id(); });
    return id;
  }
};

INSTANTIATE_TEST_SUITE_P(By, FanOutCallbacksTest,
                         ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants,
                                           Way(SchedulePolicy::kGrants, true)),
                         NameOf);

TEST_P(FanOutCallbacksTest, RunOnTheThreadThatTheLinkWasGiven) {
  Start(2);
  std::thread::id merged_on;
  std::thread::id done_on;
  Pending pending;
  fan_out_->CallAsync(
      kUnary, Ask(2),
      [&](size_t, const Text&) {
        EXPECT_TRUE(merged_on == std::thread::id() || merged_on == std::this_thread::get_id());
        merged_on = std::this_thread::get_id();
        return absl::OkStatus();
      },
      {},
      [&, done = pending.Done()](FanOutResult result) {
        done_on = std::this_thread::get_id();
        done(std::move(result));
      });
  ASSERT_TRUE(pending.Await());
  EXPECT_EQ(merged_on == LinkThread(), GetParam().inline_callbacks);
  EXPECT_EQ(done_on, merged_on);
}

TEST_P(FanOutCallbacksTest, MayStartAndCancelFanOuts) {
  Start(2);
  Pending second;
  Pending first;
  std::atomic<int> merged = 0;
  fan_out_->CallAsync(
      kUnary, Ask(2),
      [&](size_t, const Text&) {
        if (++merged == 1) second.call = fan_out_->CallAsync(kUnary, Ask(2), Ignore(), {}, second.Done());
        return absl::OkStatus();
      },
      {},
      [&, done = first.Done()](FanOutResult result) {
        second.call->Cancel();
        done(std::move(result));
      });
  ASSERT_TRUE(first.Await());
  ASSERT_TRUE(second.Await());
  EXPECT_TRUE(first.result().status.ok()) << first.result().status;
  EXPECT_TRUE(second.result().status.ok() || absl::IsCancelled(second.result().status)) << second.result().status;
  EXPECT_TRUE(AwaitIdle());
}

TEST_P(FanOutCallbacksTest, RefuseToWaitForTheirOwnThread) {
  Start(2);
  absl::Status in_merge;
  absl::Status in_done;
  Pending pending;
  fan_out_->CallAsync(
      kUnary, Ask(2),
      [&](size_t, const Text&) {
        in_merge = fan_out_->Call(kUnary, Ask(2), Ignore()).status;
        return absl::OkStatus();
      },
      {},
      [&, done = pending.Done()](FanOutResult result) {
        in_done = fan_out_->Call(kUnary, Ask(2), Ignore()).status;
        done(std::move(result));
      });
  ASSERT_TRUE(pending.Await());
  EXPECT_TRUE(pending.result().status.ok()) << pending.result().status;
  EXPECT_THAT(in_merge, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(in_done.message(),
            "FanOut::Call in a callback of its link would wait for ever: it needs the thread that it runs on");
}

using FanOutCallbacksDeathTest = FanOutCallbacksTest;
INSTANTIATE_TEST_SUITE_P(By, FanOutCallbacksDeathTest,
                         ::testing::Values(SchedulePolicy::kGrants, Way(SchedulePolicy::kGrants, true)), NameOf);

TEST_P(FanOutCallbacksDeathTest, EndTheProcessInsteadOfDestroyingTheirFanOutForEver) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto destroy = [this] {
    Start(2);
    Pending pending;
    fan_out_->CallAsync(kUnary, Ask(2), Ignore(), {}, [&, done = pending.Done()](FanOutResult result) {
      fan_out_.reset();
      done(std::move(result));
    });
    pending.Await();
  };
  EXPECT_DEATH(
      destroy(),
      "sluice: ~FanOut before its calls and their `done` have ended in a callback of its link would wait for ever");
}

TEST_P(FanOutCallbacksDeathTest, EndTheProcessInsteadOfConnectingForEver) {
  if (!GetParam().inline_callbacks) return;  // the link's thread connects
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto connect = [this] {
    Start(2);
    Pending pending;
    fan_out_->CallAsync(kUnary, Ask(2), Ignore(), {}, [&, done = pending.Done()](FanOutResult result) {
      fan_out_->Connect();
      done(std::move(result));
    });
    pending.Await();
  };
  EXPECT_DEATH(connect(), "sluice: FanOut::Connect in a callback of its link would wait for ever");
}

TEST_P(FanOutCallbacksTest, MayDestroyAnIdleFanOutOnAThreadOfTheirOwn) {
  if (GetParam().inline_callbacks) return;  // the FanOut needs the link's thread
  Start(2);
  auto idle = FanOut::Create(link_, {.workers = {fan_out_->address(0)}});
  ASSERT_TRUE(idle.ok()) << idle.status();
  Pending pending;
  fan_out_->CallAsync(kUnary, Ask(2), Ignore(), {}, [&, done = pending.Done()](FanOutResult result) {
    idle->reset();
    done(std::move(result));
  });
  ASSERT_TRUE(pending.Await());
}

class FanOutSlowCallbackTest : public FanOutCallbacksTest {
 protected:
  // Starts a fan-out whose merge does not return before the test permits it.
  std::unique_ptr<Pending> BlockCallbacks() {
    auto slow = CallAsync(Ask(1), {.timeout = absl::Minutes(5)}, [this](size_t, const Text&) {
      merging_.Notify();
      EXPECT_TRUE(go_on_.Await());
      return absl::OkStatus();
    });
    EXPECT_TRUE(merging_.Await());
    return slow;
  }

  testing::Notification merging_;
  testing::Notification go_on_;
};

INSTANTIATE_TEST_SUITE_P(By, FanOutSlowCallbackTest,
                         ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants), NameOf);

TEST_P(FanOutSlowCallbackTest, DoesNotDelayTheResponsesOfAnotherFanOut) {
  Start(2);
  const auto slow = BlockCallbacks();
  const auto other = CallAsync([](size_t i) -> std::optional<sluice::Ask<Text>> {
    if (i == 0) return std::nullopt;
    return Text();
  });
  EXPECT_TRUE(server(1).Await([](const auto& counts) { return counts.requests == 1 && counts.open == 0; }));
  EXPECT_TRUE(AwaitIdle()) << "both responses are here";
  EXPECT_FALSE(other->ended()) << "but callbacks come one after the other";
  go_on_.Notify();
  ASSERT_TRUE(slow->Await());
  ASSERT_TRUE(other->Await());
  EXPECT_TRUE(other->result().status.ok()) << other->result().status;
}

// Decompression on the link's thread would delay every grant of the link.
TEST_P(FanOutSlowCallbackTest, ResponsesAreDecompressedAmongTheCallbacks) {
  Start(2);
  const auto slow = BlockCallbacks();
  server(1).SetPlay([](const testing::Seen&) {
    return testing::Script{.messages = {"no gzip"}, .compressed = true, .headers = {{"grpc-encoding", "gzip"}}};
  });
  const auto other = CallAsync([](size_t i) -> std::optional<sluice::Ask<Text>> {
    if (i == 0) return std::nullopt;
    return Text();
  });
  EXPECT_TRUE(server(1).Await([](const auto& counts) { return counts.requests == 1 && counts.open == 0; }));
  EXPECT_TRUE(AwaitIdle());
  EXPECT_EQ(Metric("sluice_calls_total", "rpc_error"), 0) << "so far nobody has looked at the bytes";
  go_on_.Notify();
  ASSERT_TRUE(slow->Await());
  ASSERT_TRUE(other->Await());
  EXPECT_THAT(other->result().status, HasCode(absl::StatusCode::kInternal));
  EXPECT_EQ(Metric("sluice_calls_total", "corrupt"), 1);
}

TEST_P(FanOutSlowCallbackTest, DoesNotDelayTheTimersAndTheDeadlineOfAnotherFanOut) {
  Start(3);
  const auto slow = BlockCallbacks();
  for (size_t i : {1, 2}) {
    server(i).SetPlay(Holds("late"));
  }
  const auto other = CallAsync(
      [](size_t i) -> std::optional<sluice::Ask<Text>> {
        if (i != 1) return std::nullopt;
        return sluice::Ask<Text>(Text(), 10, {2});
      },
      {.timeout = absl::Milliseconds(500), .hedge_after = absl::Milliseconds(20)});
  EXPECT_TRUE(server(2).Await([](const auto& counts) { return counts.requests == 1; })) << "the hedge";
  EXPECT_TRUE(testing::Eventually([&] { return Metric("sluice_blocks_total", "deadline") == 1; }));
  for (size_t i : {1, 2}) {
    EXPECT_TRUE(server(i).Await([](const auto& counts) { return counts.cancelled == 1 && counts.open == 0; }));
  }
  go_on_.Notify();
  ASSERT_TRUE(slow->Await());
  EXPECT_TRUE(slow->result().status.ok()) << slow->result().status;
  ASSERT_TRUE(other->Await());
  EXPECT_THAT(other->result().status, HasCode(absl::StatusCode::kDeadlineExceeded));
}

class FanOutUnscheduledTest : public testing::FanOutTest {};

INSTANTIATE_TEST_SUITE_P(By, FanOutUnscheduledTest, ::testing::Values(Way(SchedulePolicy::kUnscheduled)), NameOf);

TEST_P(FanOutUnscheduledTest, BoundsTheResponsesThatWaitForMerge) {
  constexpr size_t kServers = 12;
  constexpr int64_t kMemory = 300'000;
  for (size_t i = 0; i < kServers; ++i) {
    servers_.push_back(std::make_unique<testing::ScriptedServer>(testing::Says({std::string(100'000, 'x')})));
  }
  Link::Options link;
  link.callback_memory_bytes = kMemory;
  MakeFanOut(std::move(link));
  testing::Notification merge;
  std::atomic<size_t> merged = 0;
  Pending pending;
  fan_out_->CallAsync(
      kUnary, Ask(kServers),
      [&](size_t, const Text&) {
        EXPECT_TRUE(merge.Await());
        ++merged;
        return absl::OkStatus();
      },
      {}, pending.Done());
  EXPECT_TRUE(testing::Eventually([&] { return Metric("sluice_callback_holds_total") > 0; }));
  link_->Await([&](LinkLoop& loop) { EXPECT_LE(loop.callback_memory().waiting_bytes(), kMemory); });
  merge.Notify();
  ASSERT_TRUE(pending.Await());
  EXPECT_EQ(merged, kServers);
}

}  // namespace
}  // namespace sluice
