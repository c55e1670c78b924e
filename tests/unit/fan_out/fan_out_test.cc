#include "sluice/fan_out.h"

#include <atomic>
#include <thread>

#include "sluice/plan.h"

#include "tests/unit/fan_out/fan_out_fixture.h"
#include "tests/unit/net/silent_listener.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::ExpectConsistent;
using testing::Fails;
using testing::FanOutTest;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::Holds;
using ::testing::IsEmpty;
using testing::NameOf;
using testing::Says;
using testing::Script;
using testing::Seen;
using testing::SilentListener;
using testing::Text;
using testing::TextOf;
using testing::Way;
using testing::Wire;

INSTANTIATE_TEST_SUITE_P(By, FanOutTest,
                         ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants,
                                           Way(SchedulePolicy::kGrants, true), Way(SchedulePolicy::kGrants, false, 3)),
                         NameOf);

TEST_P(FanOutTest, CollectsTheResponsesByWorker) {
  Start(3);
  EXPECT_THAT(fan_out_->Connect(), IsEmpty());
  const auto [result, responses] = fan_out_->Collect(kUnary, Ask(3));
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.asked, 3u);
  EXPECT_EQ(result.answered, 3u);
  EXPECT_EQ(result.Coverage(), 1);
  EXPECT_EQ(result.response_bytes, static_cast<int64_t>(3 * Wire("0").size()));
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(responses[i].size(), 1u);
    EXPECT_EQ(responses[i].front().value(), std::to_string(i));
    ASSERT_EQ(server(i).seen().size(), 1u);
    EXPECT_EQ(server(i).seen().front().request, Wire("what?"));
    EXPECT_EQ(server(i).seen().front().method, "/test.Answers/Get");
  }
  EXPECT_TRUE(AwaitIdle());
}

TEST_P(FanOutTest, NamesTheMethodThatAWorkerLacks) {
  Start(1);
  server(0).SetPlay([](const Seen&) { return Script{.status = {absl::StatusCode::kUnimplemented, ""}}; });
  EXPECT_THAT(std::string(fan_out_->Collect(kUnary, Ask(1)).first.status.message()),
              HasSubstr("): it has no method /test.Answers/Get"));
}

TEST_P(FanOutTest, SkipsWorkers) {
  Start(3);
  const auto [result, responses] = fan_out_->Collect(kUnary, [](size_t worker) -> std::optional<sluice::Ask<Text>> {
    if (worker == 1) return std::nullopt;
    return TextOf("?");
  });
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.asked, 2u);
  EXPECT_THAT(responses[1], IsEmpty());
  EXPECT_EQ(server(1).counts().requests, 0);
}

TEST_P(FanOutTest, EndsWithoutARequestWhereAllAreSkipped) {
  Start(1);
  const auto pending = CallAsync(Ask(0));
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok());
  EXPECT_EQ(pending->result().asked, 0u);
  EXPECT_EQ(pending->result().Coverage(), 1);
  pending->call->Cancel();
}

TEST_P(FanOutTest, MergesOneAtATimeAndNeverAfterDone) {
  Start(8);
  for (size_t i = 0; i < 8; ++i) server(i).SetPlay(Says(std::vector<std::string>(20, "part")));
  std::atomic<bool> merging = false;
  std::atomic<bool> done = false;
  std::atomic<int> merged = 0;
  for (int round = 0; round < 5; ++round) {
    done = false;
    merged = 0;
    testing::Pending pending;
    const auto merge = [&](size_t, const Text&) {
      EXPECT_FALSE(merging.exchange(true)) << "two at a time";
      EXPECT_FALSE(done) << "after done";
      std::this_thread::yield();
      ++merged;
      merging = false;
      return absl::OkStatus();
    };
    fan_out_->CallAsync(kStream, Ask(8), merge, {.success_quorum = 6}, [&](FanOutResult result) {
      done = true;
      pending.Done()(std::move(result));
    });
    ASSERT_TRUE(pending.Await());
    EXPECT_TRUE(pending.result().status.ok()) << pending.result().status;
    EXPECT_GE(merged, 6 * 20);
    ExpectConsistent(pending.result());
  }
}

TEST_P(FanOutTest, FailsWithTheStatusAndTheAddressOfTheFailureThatIsOneTooMany) {
  Start(2);
  server(1).SetPlay(Fails(absl::StatusCode::kFailedPrecondition));
  const auto [result, responses] = fan_out_->Collect(kUnary, Ask(2));
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(result.status.message(), absl::StrCat("worker 1 (", server(1).address(), "): as the test wants"));
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0].primary, 1u);
  EXPECT_EQ(result.failures[0].worker, 1u);
  ExpectConsistent(result);
}

TEST_P(FanOutTest, PartialResultsHaveTheirCoverage) {
  Start(4);
  server(2).SetPlay(Fails(absl::StatusCode::kInternal));
  const auto [result, responses] = fan_out_->Collect(kUnary, Ask(4), {.fail_limit = 1});
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.answered, 3u);
  EXPECT_EQ(result.Coverage(), 0.75);
  EXPECT_THAT(responses[2], IsEmpty());
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_THAT(result.failures[0].status, HasCode(absl::StatusCode::kInternal));
  EXPECT_EQ(Metric("sluice_blocks_total", "partial"), 1);
}

TEST_P(FanOutTest, OneFailureTooManyCancelsTheRest) {
  Start(3);
  server(0).SetPlay(Holds("late"));
  for (size_t i : {1, 2}) {
    server(i).SetPlay(Fails(absl::StatusCode::kInternal));
  }
  const auto pending = CallAsync(Ask(3), {.fail_limit = 1});
  ASSERT_TRUE(pending->Await());
  EXPECT_THAT(pending->result().status, HasCode(absl::StatusCode::kInternal));
  EXPECT_EQ(pending->result().failures.size(), 2u);
  EXPECT_EQ(pending->result().cancelled, 1u);
  // The worker may not have received the request yet, or may never receive it.
  EXPECT_TRUE(server(0).Await([](const auto& counts) { return counts.cancelled == counts.requests; }));
}

TEST_P(FanOutTest, AQuorumIsEnoughAndTheRestIsCancelledAtTheWorkers) {
  Start(3);
  server(1).SetPlay(Holds("late"));
  std::atomic<int> merged = 0;
  const auto pending = CallAsync(Ask(3), {.success_quorum = 2}, [&](size_t worker, const Text&) {
    EXPECT_NE(worker, 1u);
    ++merged;
    return absl::OkStatus();
  });
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok()) << pending->result().status;
  EXPECT_EQ(pending->result().answered, 2u);
  EXPECT_EQ(pending->result().cancelled, 1u);
  EXPECT_EQ(merged, 2);
  EXPECT_TRUE(server(1).Await([](const auto& counts) { return counts.open == 0; }));
  EXPECT_TRUE(AwaitIdle());
}

TEST_P(FanOutTest, NoResponseIsMergedBeyondTheQuorum) {
  Start(8);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> merged = 0;
    const auto result = fan_out_->Call(kUnary, Ask(8),
                                       [&](size_t, const Text&) {
                                         ++merged;
                                         return absl::OkStatus();
                                       },
                                       {.success_quorum = 3});
    EXPECT_EQ(merged, 3);
    EXPECT_EQ(result.answered, 3u);
    ExpectConsistent(result);
  }
}

TEST_P(FanOutTest, AQuorumOutOfReachFailsAtOnce) {
  Start(3);
  server(0).SetPlay(Holds("late"));
  for (size_t i : {1, 2}) {
    server(i).SetPlay(Fails(absl::StatusCode::kAborted));
  }
  const auto pending = CallAsync(Ask(3), {.fail_limit = 3, .success_quorum = 2});
  ASSERT_TRUE(pending->Await());
  EXPECT_THAT(pending->result().status, HasCode(absl::StatusCode::kAborted));
}

TEST_P(FanOutTest, AQuorumLetsTheRestFail) {
  Start(4);
  for (size_t i : {0, 1}) server(i).SetPlay(Fails(absl::StatusCode::kInternal));
  const FanOutOptions options = {.success_quorum = 2};
  const auto result = fan_out_->Call(kUnary, Ask(4), Ignore(), options);
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.answered, 2u);
  server(2).SetPlay(Fails(absl::StatusCode::kInternal));
  server(3).SetPlay(Holds("late"));
  EXPECT_THAT(fan_out_->Call(kUnary, Ask(4), Ignore(), options).status, HasCode(absl::StatusCode::kInternal));
}

TEST_P(FanOutTest, AFailLimitOf0FailsBeforeAQuorum) {
  Start(2);
  server(0).SetPlay(Fails(absl::StatusCode::kInternal));
  server(1).SetPlay(Holds("late"));
  const auto result = fan_out_->Call(kUnary, Ask(2), Ignore(), {.fail_limit = 0, .success_quorum = 1});
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kInternal));
}

TEST_P(FanOutTest, FailLimitAndQuorumTogether) {
  Start(4);
  server(0).SetPlay(Fails(absl::StatusCode::kInternal));
  const FanOutOptions both = {.fail_limit = 1, .success_quorum = 3};
  EXPECT_TRUE(fan_out_->Call(kUnary, Ask(4), Ignore(), both).status.ok());
  server(1).SetPlay(Fails(absl::StatusCode::kInternal));
  server(2).SetPlay(Holds("late"));
  const auto result = fan_out_->Call(kUnary, Ask(4), Ignore(), both);
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kInternal));
  EXPECT_EQ(result.failures.size(), 2u);
}

TEST_P(FanOutTest, AReplicaRespondsForAWorkerThatFailed) {
  Start(4);
  server(0).SetPlay(Fails(absl::StatusCode::kUnavailable));
  server(2).SetPlay(Fails(absl::StatusCode::kUnavailable));
  const auto [result, responses] = fan_out_->Collect(kUnary, Ask(2, {2, 3}));
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.asked, 2u);
  EXPECT_EQ(result.retries, 2u);
  EXPECT_EQ(result.hedges, 0u);
  EXPECT_THAT(result.failures, IsEmpty());
  ASSERT_EQ(responses[0].size(), 1u) << "by the worker of the map";
  EXPECT_EQ(responses[0].front().value(), "3");
  EXPECT_THAT(responses[3], IsEmpty());
  EXPECT_EQ(Metric("sluice_call_retries_total"), 2);
}

TEST_P(FanOutTest, TheFailureIsThatOfTheLastReplica) {
  Start(3);
  server(0).SetPlay(Fails(absl::StatusCode::kUnavailable));
  server(2).SetPlay(Fails(absl::StatusCode::kNotFound));
  const auto result = fan_out_->Call(kUnary, Ask(1, {2}), Ignore());
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kNotFound));
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0].primary, 0u);
  EXPECT_EQ(result.failures[0].worker, 2u);
}

TEST_P(FanOutTest, AResponseThatMergeRefusesIsAskedOfAReplica) {
  for (const absl::Status& verdict : {absl::DataLossError("no good"), absl::CancelledError("no good either")}) {
    servers_.clear();
    Start(2);
    std::vector<std::string> merged;
    const auto result = fan_out_->Call(kUnary, Ask(1, {1}), [&](size_t worker, const Text& text) {
      EXPECT_EQ(worker, 0u);
      merged.push_back(text.value());
      return text.value() == "0" ? verdict : absl::OkStatus();
    });
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_THAT(merged, ElementsAre("0", "1"));
    EXPECT_EQ(result.retries, 1u);
    EXPECT_EQ(result.response_bytes, static_cast<int64_t>(Wire("1").size()));
  }
}

TEST_P(FanOutTest, AResponseThatIsNoMessageIsAFailure) {
  Start(1);
  server(0).SetPlay([](const Seen&) { return Script{.messages = {"\x0a\x64!"}}; });
  EXPECT_THAT(fan_out_->Call(kUnary, Ask(1), Ignore()).status, HasCode(absl::StatusCode::kDataLoss));
}

// gRPC's C++ servers cancel calls that arrive while they shut down. The application did not cancel them.
TEST_P(FanOutTest, AWorkerThatCancelsHasFailed) {
  Start(2);
  server(0).SetPlay(Fails(absl::StatusCode::kCancelled));
  EXPECT_EQ(fan_out_->Call(kUnary, Ask(1, {1}), Ignore()).retries, 1u);
  EXPECT_THAT(fan_out_->Call(kUnary, Ask(1), Ignore()).status, HasCode(absl::StatusCode::kCancelled));
  EXPECT_EQ(Metric("sluice_calls_total", "rpc_error"), 2);
  EXPECT_EQ(Metric("sluice_blocks_total", "failed"), 1);
}

TEST_P(FanOutTest, PassesTheDeadlineAndTheMetadataOn) {
  Start(1);
  const auto before = std::chrono::system_clock::now();
  const FanOutOptions options = {.timeout = absl::Seconds(20), .metadata = {{"tenant", "blue"}, {"trace-bin", "\x01"}}};
  EXPECT_TRUE(fan_out_->Call(kUnary, Ask(1), Ignore(), options).status.ok());
  const Seen seen = server(0).seen().at(0);
  EXPECT_EQ(seen.metadata.find("tenant")->second, "blue");
  EXPECT_EQ(seen.metadata.find("trace-bin")->second, "\x01");
  EXPECT_GT(seen.deadline, before + std::chrono::seconds(15));
  EXPECT_LT(seen.deadline, std::chrono::system_clock::now() + std::chrono::seconds(21));
}

TEST_P(FanOutTest, CarriesRawBytes) {
  Start(1);
  const auto [result, responses] = fan_out_->Collect(Method<std::string, std::string>{"/any.Thing/Raw"},
                                                     [](size_t) { return std::string("as it is"); });
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(server(0).seen().at(0).request, "as it is");
  EXPECT_EQ(responses[0].at(0), Wire("0"));
}

TEST_P(FanOutTest, TakesEmptyAndLargeResponses) {
  Start(2);
  server(0).SetPlay(Says({""}));
  server(1).SetPlay(Says({std::string(4 << 20, 'x')}));
  const auto [result, responses] = fan_out_->Collect(kUnary, Ask(2));
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(responses[0].at(0).value(), "");
  EXPECT_EQ(responses[1].at(0).value().size(), size_t{4 << 20});
}

TEST_P(FanOutTest, AMessageAboveTheLimitIsAFailure) {
  Start(1, {}, {.max_response_bytes = 1000});
  server(0).SetPlay(Says({std::string(2000, 'x')}));
  const absl::Status status = fan_out_->Call(kUnary, Ask(1), Ignore()).status;
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()), HasSubstr("larger than 1000 bytes, this client's max_response_bytes"));
  server(0).SetPlay(Says({std::string(900, 'x')}));
  EXPECT_TRUE(fan_out_->Call(kUnary, Ask(1), Ignore()).status.ok());
}

TEST_P(FanOutTest, ExpectsTheLargestResponseThereIs) {
  Start(1);
  const auto ask = [](size_t) { return sluice::Ask<Text>(Text(), kMaxResponseBytes); };
  const auto result = fan_out_->Call(kUnary, ask, Ignore());
  EXPECT_TRUE(result.status.ok()) << result.status;
}

TEST_P(FanOutTest, AWorkerOutOfReachFailsOrIsReplaced) {
  StartServers(1);
  SilentListener nobody;
  nobody.Close();
  MakeFanOut({}, {.workers = {nobody.address()}, .connect_timeout = absl::Milliseconds(100)});
  EXPECT_THAT(fan_out_->Connect(), ElementsAre(0));
  EXPECT_THAT(fan_out_->Call(kUnary, Ask(1), Ignore()).status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(fan_out_->Call(kUnary, Ask(1, {1}), Ignore()).status.ok());
}

TEST_P(FanOutTest, AFullQueueIsResourceExhausted) {
  Start(3, {.schedule = {.queue_limit = 2}});
  const auto result = fan_out_->Call(kUnary, Ask(3), Ignore());
  EXPECT_FALSE(result.status.ok());
  EXPECT_EQ(result.asked, 3u);
  EXPECT_EQ(result.cancelled, 3u);
  EXPECT_TRUE(fan_out_->Call(kUnary, Ask(2), Ignore()).status.ok());
}

TEST_P(FanOutTest, SmallResponsesOfWhichTheSizeIsKnownNeedNoGrant) {
  Start(2, FixedBudget());
  const std::string answer(900, 'x');
  for (size_t i = 0; i < 2; ++i) server(i).SetPlay(Holds(answer));
  const auto pending = CallAsync(Ask(2, {}, /*bytes=*/1000));
  ASSERT_TRUE(server(0).AwaitHolding(1));
  ASSERT_TRUE(server(1).AwaitHolding(1));
  EXPECT_EQ(link_->State().in_flight_calls, 2) << "granted with their requests";
  HoldBack();
  server(0).Release();
  server(1).Release();
  ASSERT_TRUE(pending->Await());
  EXPECT_TRUE(pending->result().status.ok()) << pending->result().status;
  EXPECT_EQ(pending->result().answered, 2u);
}

TEST_P(FanOutTest, LearnsHowLargeTheResponsesOfAMethodAre) {
  // A stall would take back the charged bytes before the test reads them.
  Start(1, {.schedule = {.stall_timeout = absl::Hours(1)}});
  const auto of_unknown_size = [](size_t) { return Text(); };
  server(0).SetPlay(Says({std::string(10'000, 'x')}));
  // One call at a time: with several workers, the machine may delay one of them, and slow workers get no early grants.
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(fan_out_->Call(kUnary, of_unknown_size, Ignore()).status.ok());
  server(0).SetPlay(Holds("x"));
  ASSERT_TRUE(AwaitIdle());
  const auto pending = CallAsync(of_unknown_size);
  ASSERT_TRUE(AwaitState([](const ScheduleState& state) { return state.in_flight_calls == 1; }));
  const int64_t charged = link_->State().in_flight_bytes;
  EXPECT_GT(charged, 10'000);
  EXPECT_LT(charged, 12'000);
  server(0).Release();
  EXPECT_TRUE(pending->Await());
}

}  // namespace
}  // namespace sluice
