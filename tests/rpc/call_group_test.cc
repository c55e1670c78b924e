#include "lib/rpc/call_group.h"

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "lib/rpc/messages.h"
#include "lib/rpc/worker_channels.h"
#include "tests/blocks/test_cluster.h"
#include "tests/fan_out/scripted_server.h"
#include "tests/link/silent_listener.h"

namespace sluice {
namespace {

using testing::Error;
using testing::Hang;
using testing::HasCode;
using testing::kPatience;
using testing::Slow;
using testing::TestCluster;

// What the handlers of one group were told, in order.
class Record {
 public:
  CallGroup::Handlers Handlers() {
    return {
        .on_answer = [this](CallGroup& group, size_t tag,
                            absl::StatusOr<grpc::ByteBuffer> answer) { return OnAnswer(group, tag, answer.status()); },
        .on_end = [this] { OnEnd(); }};
  }

  absl::Status OnAnswer(CallGroup& group, size_t tag, const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      EXPECT_FALSE(ended_.HasBeenNotified()) << "an answer after the end";
      answers_[tag].push_back(status);
      ++answer_count_;
    }
    return then ? then(group, tag, status) : absl::OkStatus();
  }

  void OnEnd() { ended_.Notify(); }  // a second time would be fatal

  bool AwaitEnd() { return ended_.WaitForNotificationWithTimeout(kPatience); }
  bool ended() const { return ended_.HasBeenNotified(); }
  bool AwaitAnswers(size_t count) {
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return answer_count_ >= count; };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&there), kPatience);
  }
  std::map<size_t, std::vector<absl::Status>> answers() {
    absl::MutexLock lock(&mutex_);
    return answers_;
  }

  std::function<absl::Status(CallGroup&, size_t, const absl::Status&)> then;

 private:
  absl::Mutex mutex_;
  absl::Notification ended_;
  size_t answer_count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<size_t, std::vector<absl::Status>> answers_ ABSL_GUARDED_BY(mutex_);
};

class CallGroupTest : public ::testing::Test {
 protected:
  // The budget holds one answer of kBytes at a time.
  static constexpr uint32_t kBytes = 1000;
  CallGroupTest()
      : cluster_({.workers = 4,
                  .file_bytes = 100000,
                  .sru_bytes = kBytes,
                  .schedule = {.discipline = Discipline::kRolling, .budget_bytes = 1500}}) {
    std::vector<std::string> addresses;
    for (size_t i = 0; i < cluster_.size(); ++i) addresses.push_back(cluster_.worker(i).address());
    channels_ = std::make_unique<WorkerChannels>(addresses, link().workers(), WorkerChannels::Options{});
  }

  LinkDriver& link() { return cluster_.link().driver(); }

  GroupCall Call(size_t worker, size_t tag, absl::Duration timeout = kPatience) {
    v1::ReadSruRequest request;
    request.set_file("data");
    request.set_worker(static_cast<uint32_t>(worker));
    request.set_length(kBytes);
    return {.channels = channels_.get(),
            .worker = worker,
            .method = "/sluice.v1.SruService/ReadSru",
            .request = Serialize(request),
            .response_bytes = kBytes,
            .timeout = timeout,
            .tag = tag};
  }

  std::vector<GroupCall> CallEach() {
    std::vector<GroupCall> calls;
    for (size_t i = 0; i < cluster_.size(); ++i) calls.push_back(Call(i, i));
    return calls;
  }

  static TimePoint In(absl::Duration time) {
    return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(time);
  }

  absl::StatusOr<std::shared_ptr<CallGroup>> Start(std::vector<GroupCall> calls,
                                                   TimePoint deadline = TimePoint::max()) {
    return CallGroup::Start(link(), std::move(calls), deadline, record_.Handlers());
  }

  TestCluster cluster_;
  std::unique_ptr<WorkerChannels> channels_;
  Record record_;
};

TEST_F(CallGroupTest, EveryCallIsAnsweredOnceAndThenItEnds) {
  ASSERT_TRUE(Start(CallEach()).ok());  // nobody holds it
  ASSERT_TRUE(record_.AwaitEnd());
  const auto answers = record_.answers();
  ASSERT_EQ(answers.size(), 4u);
  for (const auto& [tag, statuses] : answers) {
    ASSERT_EQ(statuses.size(), 1u) << tag;
    EXPECT_TRUE(statuses.front().ok()) << statuses.front();
  }
  EXPECT_EQ(cluster_.Requests(), 4);
}

TEST_F(CallGroupTest, RefusesToStartWithTheErrorsOfTheSchedule) {
  EXPECT_THAT(Start({}).status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Start(CallEach(), In(-absl::Seconds(1))).status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(record_.ended());
  EXPECT_EQ(cluster_.Requests(), 0);
}

TEST_F(CallGroupTest, OneCallAtATimeWhereTheBudgetHoldsOne) {
  cluster_.worker(0).SpoilSrus([](const auto&) { return Hang(); });
  const auto group = Start({Call(0, 0), Call(0, 1), Call(1, 2)});
  ASSERT_TRUE(group.ok());
  ASSERT_TRUE(cluster_.worker(0).Await([](const auto& counts) { return counts.open == 1; }));
  EXPECT_EQ(cluster_.link().State().in_flight_calls, 1);
  EXPECT_EQ(cluster_.link().State().waiting_calls, 2);
  (*group)->Cancel();
  ASSERT_TRUE(record_.AwaitEnd());
  EXPECT_EQ(cluster_.worker(0).counts().most_open, 1);
  EXPECT_EQ(cluster_.worker(1).counts().requests, 0);
}

TEST_F(CallGroupTest, AddFromOnAnswerKeepsItOpenUntilTheLastRetry) {
  cluster_.worker(0).SpoilSrus([](const auto&) { return Error(grpc::StatusCode::UNAVAILABLE); });
  int retries = 0;
  record_.then = [&](CallGroup& group, size_t tag, const absl::Status& status) {
    if (!status.ok()) group.Add(++retries < 5 ? Call(0, tag) : Call(1, tag));
    return absl::OkStatus();
  };
  ASSERT_TRUE(Start({Call(0, 7)}).ok());
  ASSERT_TRUE(record_.AwaitEnd());
  const auto answers = record_.answers();
  ASSERT_EQ(answers.at(7).size(), 6u);
  EXPECT_TRUE(answers.at(7).back().ok());
  EXPECT_EQ(cluster_.worker(0).counts().requests, 5);
}

TEST_F(CallGroupTest, CancelEndsWhatWaitsAtOnceAndWhatIsInFlightAtTheWorker) {
  cluster_.SpoilSrus([](const auto&) { return Hang(); });
  const auto group = Start(CallEach());
  ASSERT_TRUE(group.ok());
  ASSERT_TRUE(cluster_.worker(0).Await([](const auto& counts) { return counts.open == 1; }));
  (*group)->Cancel();
  (*group)->Cancel();
  ASSERT_TRUE(record_.AwaitEnd());
  for (const auto& [tag, statuses] : record_.answers()) {
    ASSERT_EQ(statuses.size(), 1u) << tag;
    EXPECT_THAT(statuses.front(), HasCode(absl::StatusCode::kCancelled)) << tag;
  }
  EXPECT_TRUE(cluster_.worker(0).Await([](const auto& counts) { return counts.cancelled == 1 && counts.open == 0; }));
  EXPECT_EQ(cluster_.Requests(), 1);
}

TEST_F(CallGroupTest, CancelAfterTheEndDoesNothing) {
  const auto group = Start(CallEach());
  ASSERT_TRUE(group.ok());
  ASSERT_TRUE(record_.AwaitEnd());
  (*group)->Cancel();
  EXPECT_EQ(record_.answers().size(), 4u);
}

TEST_F(CallGroupTest, CancelFromOnAnswerEndsTheOthers) {
  record_.then = [](CallGroup& group, size_t, const absl::Status&) {
    group.Cancel();
    return absl::OkStatus();
  };
  ASSERT_TRUE(Start(CallEach()).ok());
  ASSERT_TRUE(record_.AwaitEnd());
  EXPECT_EQ(record_.answers().size(), 4u);
  EXPECT_EQ(cluster_.Requests(), 1);
}

TEST_F(CallGroupTest, ARetryOfACancelledBlockIsNotSent) {
  cluster_.SpoilSrus([](const auto&) { return Hang(); });
  record_.then = [&](CallGroup& group, size_t tag, const absl::Status&) {
    if (tag < 100) group.Add(Call(tag, tag + 100));
    return absl::OkStatus();
  };
  const auto group = Start(CallEach());
  ASSERT_TRUE(group.ok());
  ASSERT_TRUE(cluster_.worker(0).Await([](const auto& counts) { return counts.open == 1; }));
  (*group)->Cancel();
  ASSERT_TRUE(record_.AwaitEnd());
  EXPECT_EQ(record_.answers().size(), 8u);
  EXPECT_EQ(cluster_.Requests(), 1);
}

TEST_F(CallGroupTest, CancelRacesWithRetriesOfFailingCalls) {
  cluster_.SpoilSrus([](const auto&) { return Error(grpc::StatusCode::UNAVAILABLE); });
  ASSERT_TRUE(cluster_.link().SetBudget(100000).ok());
  for (int round = 0; round < 50; ++round) {
    Record record;
    std::atomic<int> added = 0;
    record.then = [&](CallGroup& group, size_t tag, const absl::Status& status) {
      if (!absl::IsCancelled(status)) {
        ++added;
        group.Add(Call(tag % 4, tag));
      }
      return status;
    };
    const auto group = CallGroup::Start(link(), CallEach(), TimePoint::max(), record.Handlers());
    ASSERT_TRUE(group.ok());
    ASSERT_TRUE(record.AwaitAnswers(static_cast<size_t>(round % 8)));
    (*group)->Cancel();
    ASSERT_TRUE(record.AwaitEnd());
    size_t answers = 0;
    for (const auto& [tag, statuses] : record.answers()) answers += statuses.size();
    EXPECT_EQ(answers, 4u + static_cast<size_t>(added)) << "every call one answer";
  }
}

TEST_F(CallGroupTest, ADeadlineThatPassesWhileACallWaitsSendsNothing) {
  cluster_.worker(0).SpoilSrus([](const auto&) { return Hang(); });
  const auto started = std::chrono::steady_clock::now();
  ASSERT_TRUE(Start({Call(0, 0), Call(1, 1), Call(2, 2)}, In(absl::Milliseconds(300))).ok());
  ASSERT_TRUE(record_.AwaitEnd());
  EXPECT_GE(std::chrono::steady_clock::now() - started, std::chrono::milliseconds(300));
  for (const auto& [tag, statuses] : record_.answers()) {
    EXPECT_THAT(statuses.front(), HasCode(absl::StatusCode::kDeadlineExceeded)) << tag;
  }
  EXPECT_EQ(cluster_.worker(1).counts().requests, 0);
  EXPECT_EQ(cluster_.worker(2).counts().requests, 0);
  EXPECT_EQ(cluster_.Metric("sluice_timeouts_total", "queue_deadline"), 2);
  EXPECT_EQ(cluster_.Metric("sluice_timeouts_total", "rpc_deadline"), 1);
  EXPECT_EQ(cluster_.Metric("sluice_sru_requests_total", "expired"), 2);
}

// The timer is set for the earliest deadline, whatever the order in which they came.
TEST_F(CallGroupTest, DeadlinesPassInTheirOwnOrder) {
  cluster_.worker(0).SpoilSrus([](const auto&) { return Hang(); });
  const auto holder = Start({Call(0, 0)});
  ASSERT_TRUE(holder.ok());
  Record late;
  Record early;
  std::atomic<bool> early_first = false;
  late.then = [&](CallGroup&, size_t, const absl::Status&) {
    early_first = early.answers().count(1) > 0;
    return absl::OkStatus();
  };
  ASSERT_TRUE(CallGroup::Start(link(), {Call(1, 1)}, In(absl::Milliseconds(300)), late.Handlers()).ok());
  ASSERT_TRUE(CallGroup::Start(link(), {Call(1, 1)}, In(absl::Milliseconds(100)), early.Handlers()).ok());
  ASSERT_TRUE(early.AwaitEnd());
  ASSERT_TRUE(late.AwaitEnd());
  EXPECT_TRUE(early_first);
  (*holder)->Cancel();
  ASSERT_TRUE(record_.AwaitEnd());
  EXPECT_EQ(cluster_.worker(1).counts().requests, 0);
}

TEST_F(CallGroupTest, TheTimeoutOfACallCountsFromItsSending) {
  cluster_.worker(0).SpoilSrus([](const auto&) { return Slow(absl::Milliseconds(1200)); });
  // The second waits for longer than its own timeout, and is answered.
  ASSERT_TRUE(Start({Call(0, 0), Call(1, 1, absl::Seconds(1))}).ok());
  ASSERT_TRUE(record_.AwaitEnd());
  EXPECT_TRUE(record_.answers().at(1).front().ok()) << record_.answers().at(1).front();
}

TEST_F(CallGroupTest, TimesWithoutEndAreTimes) {
  ASSERT_TRUE(Start({Call(0, 0, absl::InfiniteDuration())}).ok());
  ASSERT_TRUE(record_.AwaitEnd());
  EXPECT_TRUE(record_.answers().at(0).front().ok()) << record_.answers().at(0).front();
}

TEST_F(CallGroupTest, AWorkerThatCancelsIsAWorkerThatFailed) {
  cluster_.worker(0).SpoilSrus([](const auto&) { return Error(grpc::StatusCode::CANCELLED); });
  ASSERT_TRUE(Start({Call(0, 0)}).ok());
  ASSERT_TRUE(record_.AwaitEnd());
  EXPECT_THAT(record_.answers().at(0).front(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(cluster_.Metric("sluice_sru_requests_total", "rpc_error"), 1);
  EXPECT_EQ(cluster_.Metric("sluice_sru_requests_total", "cancelled"), 0);
}

// A call whose time is over before it was sent has no connection, and gRPC names it after its channel.
TEST_F(CallGroupTest, AWorkerKeepsItsConnectionWhenACallToItIsNeverSent) {
  ASSERT_TRUE(cluster_.link().telemetry_status().ok());
  ASSERT_TRUE(cluster_.link().SetBudget(100000).ok());
  const auto connections = [&] { return cluster_.Gauge("sluice_link_connections"); };
  ASSERT_TRUE(Start({Call(0, 0)}).ok());
  ASSERT_TRUE(record_.AwaitEnd());
  ASSERT_TRUE(testing::Eventually([&] { return connections() == 1; }));
  // The link is looked at several times while the second is under way.
  cluster_.worker(0).SpoilSrus([](const auto&) { return Slow(absl::Milliseconds(500)); });
  Record record;
  ASSERT_TRUE(
      CallGroup::Start(link(), {Call(0, 0, absl::Nanoseconds(1)), Call(0, 1)}, TimePoint::max(), record.Handlers())
          .ok());
  bool kept = true;
  while (!record.ended()) kept = kept && connections() == 1;
  EXPECT_TRUE(kept);
  EXPECT_THAT(record.answers().at(0).front(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(record.answers().at(1).front().ok()) << record.answers().at(1).front();
}

TEST_F(CallGroupTest, CountsWhatWorkersReportOfTheirConnections) {
  testing::ScriptedServer server;
  channels_ = std::make_unique<WorkerChannels>(std::vector<std::string>{server.address()}, link().workers(),
                                               WorkerChannels::Options{});
  const std::vector<std::string> reports = {"51234 7 1", "51234 7 1", "51234 9 1", "51235 4 3", "no report", ""};
  for (const std::string& report : reports) {
    server.SetPlay([report](const auto&) {
      testing::Script script;
      if (!report.empty()) script.trailers = {{"sluice-tcp", report}};
      return script;
    });
    for (const bool streams : {false, true}) {
      GroupCall call = Call(0, 0);
      call.server_streaming = streams;
      Record record;
      CallGroup::Handlers handlers = record.Handlers();
      handlers.on_message = [](CallGroup&, size_t, grpc::ByteBuffer&) {};
      ASSERT_TRUE(CallGroup::Start(link(), {call}, TimePoint::max(), handlers).ok());
      ASSERT_TRUE(record.AwaitEnd());
      EXPECT_TRUE(record.answers().at(0).front().ok()) << record.answers().at(0).front();
    }
  }
  EXPECT_EQ(cluster_.Metric("sluice_worker_reported_tcp_total", "retransmit"), 9 + 4);
  EXPECT_EQ(cluster_.Metric("sluice_worker_reported_tcp_total", "rto"), 1 + 3);
  EXPECT_EQ(cluster_.Metric("sluice_timeouts_total", "tcp_rto"), 0) << "that is what was inferred";
}

TEST_F(CallGroupTest, CountsWhatAWorkerReportsWithAnError) {
  testing::ScriptedServer server([](const auto&) {
    return testing::Script{
        .messages = {}, .status = {grpc::StatusCode::INTERNAL, "broken"}, .trailers = {{"sluice-tcp", "51234 3 2"}}};
  });
  channels_ = std::make_unique<WorkerChannels>(std::vector<std::string>{server.address()}, link().workers(),
                                               WorkerChannels::Options{});
  ASSERT_TRUE(Start({Call(0, 0)}).ok());
  ASSERT_TRUE(record_.AwaitEnd());
  EXPECT_THAT(record_.answers().at(0).front(), HasCode(absl::StatusCode::kInternal));
  EXPECT_EQ(cluster_.Metric("sluice_worker_reported_tcp_total", "retransmit"), 3);
  EXPECT_EQ(cluster_.Metric("sluice_worker_reported_tcp_total", "rto"), 2);
}

TEST_F(CallGroupTest, CountsAnAnswerThatIsWorthNothingAsCorrupt) {
  record_.then = [](CallGroup&, size_t, const absl::Status&) { return absl::DataLossError("of no use"); };
  ASSERT_TRUE(Start({Call(0, 0)}).ok());
  ASSERT_TRUE(record_.AwaitEnd());
  ASSERT_TRUE(cluster_.AwaitIdle());
  EXPECT_EQ(cluster_.Metric("sluice_sru_requests_total", "corrupt"), 1);
  EXPECT_EQ(cluster_.Metric("sluice_sru_requests_total", "ok"), 0);
}

}  // namespace
}  // namespace sluice
