#include <string>
#include <vector>

#include "sluice/access_record.h"
#include "sluice/fan_out.h"

#include "absl/strings/str_cat.h"
#include "tests/unit/fan_out/fan_out_fixture.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/silent_listener.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::EventLog;
using testing::Fails;
using testing::Holds;
using testing::NameOf;
using ::testing::SizeIs;
using testing::Text;
using ::testing::UnorderedElementsAre;

// The spans that a FanOut reports.
class FanOutAccessTest : public testing::FanOutTest {
 protected:
  void Start(size_t servers) {
    FanOut::Options options;
    options.on_access = [this](const AccessRecord& record) {
      EXPECT_EQ(record.group, "");
      EXPECT_GE(record.took, absl::ZeroDuration());
      if (record.ready != absl::InfiniteDuration()) {
        EXPECT_EQ(record.waited + record.ready + record.received, record.took);
        EXPECT_LE(record.granted, record.took);
      }
      spans_.Add(absl::StrCat(record.worker == server(0).address() ? "first" : "second", " ", record.method, " ",
                              absl::StatusCodeToString(record.outcome), " ", record.response_bytes, " ",
                              record.traceparent));
    };
    FanOutTest::Start(servers, {}, std::move(options));
  }

  EventLog spans_;
};

INSTANTIATE_TEST_SUITE_P(By, FanOutAccessTest, ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         NameOf);

TEST_P(FanOutAccessTest, EachCallHasASpanWithItsContext) {
  Start(2);
  const auto map = [](size_t worker) -> std::optional<sluice::Ask<Text>> {
    Metadata own;
    if (worker == 1) own = {{"traceparent", "00-1-3-01"}};
    return sluice::Ask<Text>(Text(), std::nullopt, {}, own);
  };
  ASSERT_TRUE(fan_out_->Call(kUnary, map, Ignore(), {.metadata = {{"traceparent", "00-1-2-01"}}}).status.ok());
  EXPECT_THAT(spans_.Await(2), UnorderedElementsAre("first /test.Answers/Get OK 3 00-1-2-01",
                                                    "second /test.Answers/Get OK 3 00-1-3-01"));
}

TEST_P(FanOutAccessTest, ARetryIsASpanOfItsOwn) {
  Start(2);
  server(0).SetPlay(Fails(absl::StatusCode::kUnavailable));
  ASSERT_TRUE(fan_out_->Call(kUnary, Ask(1, {1}), Ignore()).status.ok());
  EXPECT_THAT(spans_.Await(2), ElementsAre("first /test.Answers/Get UNAVAILABLE 0 ", "second /test.Answers/Get OK 3 "));
}

TEST_P(FanOutAccessTest, ACallThatIsNotNeededIsCancelled) {
  Start(2);
  server(1).SetPlay(Holds("late"));
  ASSERT_TRUE(fan_out_->Call(kUnary, Ask(2), Ignore(), {.success_quorum = 1}).status.ok());
  EXPECT_THAT(spans_.Await(2),
              UnorderedElementsAre("first /test.Answers/Get OK 3 ", "second /test.Answers/Get CANCELLED 0 "));
}

TEST_P(FanOutAccessTest, AResponseThatMergeRefusesIsDataLoss) {
  Start(1);
  const auto refuse = [](size_t, const Text&) { return absl::InvalidArgumentError("no"); };
  EXPECT_FALSE(fan_out_->Call(kUnary, Ask(1), refuse).status.ok());
  EXPECT_THAT(spans_.Await(1), ElementsAre("first /test.Answers/Get DATA_LOSS 0 "));
}

TEST_P(FanOutAccessTest, WhatIsNotSentHasNoTimes) {
  FanOut::Options options;
  absl::Duration waited;
  options.on_access = [&](const AccessRecord& record) {
    waited = record.waited;
    spans_.Add(absl::StrCat(absl::StatusCodeToString(record.outcome)));
  };
  options.workers = {"127.0.0.1:1"};
  MakeFanOut({}, std::move(options));
  EXPECT_FALSE(fan_out_->Call(kUnary, Ask(1), Ignore()).status.ok());
  ASSERT_THAT(spans_.Await(1), SizeIs(1));
  EXPECT_EQ(spans_.events(), std::vector<std::string>{"UNAVAILABLE"});
  EXPECT_EQ(waited, absl::InfiniteDuration());
}

// The limits at which the link refuses or ends the calls of a FanOut.
class FanOutLimitTest : public testing::FanOutTest {
 protected:
  void Start(const ScheduleOptions& schedule, FanOut::Options options = {}) {
    options.on_access = [this](const AccessRecord& record) {
      limits_.Add(absl::StrCat(absl::StatusCodeToString(record.outcome), " ", record.limit));
    };
    MakeFanOut({.schedule = schedule}, std::move(options));
  }
  void TearDown() override { fan_out_.reset(); }  // calls that were cancelled report, too
  // Expects the record of a call to name the limit while `calls` calls wait for the same worker.
  void ExpectNamed(const ScheduleOptions& schedule, size_t calls, const std::string& limit) {
    const testing::SilentListener silent;
    Start(schedule, {.workers = {silent.address()}});
    std::vector<std::unique_ptr<testing::Pending>> waiting(calls);
    for (auto& waits : waiting) waits = CallAsync(Ask(1));
    EXPECT_FALSE(fan_out_->Call(kUnary, Ask(1), Ignore()).status.ok());
    EXPECT_THAT(limits_.Await(1), ElementsAre("RESOURCE_EXHAUSTED " + limit));
    for (auto& waits : waiting) waits->call->Cancel();
  }

  EventLog limits_;
};

INSTANTIATE_TEST_SUITE_P(By, FanOutLimitTest, ::testing::Values(SchedulePolicy::kGrants), NameOf);

TEST_P(FanOutLimitTest, AFullQueueIsNamed) {
  ExpectNamed({.queue_limit = 1}, 1, "schedule.queue_limit");
}

TEST_P(FanOutLimitTest, AQueueThatIsFullOfBytesIsNamed) {
  ExpectNamed({.queue_bytes = 15}, 1, "schedule.queue_bytes");
}

TEST_P(FanOutLimitTest, AFullQueueOfAWorkerIsNamed) {
  ExpectNamed({.queue_limit = 200}, 100, "schedule.queue_limit");
}

TEST_P(FanOutLimitTest, TheTimeoutOfTheQueueIsNamed) {
  StartServers(1);
  Start({.queue_timeout = absl::Milliseconds(10)});
  ASSERT_THAT(fan_out_->Connect(), ::testing::IsEmpty());
  HoldBack();
  EXPECT_FALSE(fan_out_->Call(kUnary, Ask(1), Ignore()).status.ok());
  EXPECT_THAT(limits_.Await(1), ElementsAre("RESOURCE_EXHAUSTED schedule.queue_timeout"));
}

TEST_P(FanOutLimitTest, AWorkersOwnStatusHasNoLimit) {
  StartServers(1);
  server(0).SetPlay(Fails(absl::StatusCode::kResourceExhausted));
  Start({});
  EXPECT_FALSE(fan_out_->Call(kUnary, Ask(1), Ignore()).status.ok());
  EXPECT_THAT(limits_.Await(1), ElementsAre("RESOURCE_EXHAUSTED "));
}

}  // namespace
}  // namespace sluice
