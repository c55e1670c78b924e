#include "lib/link/queue_timeout.h"

#include <chrono>
#include <string>

#include "lib/scheduling/limit_status.h"
#include "tests/unit/link/virtual_link_fixture.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::VirtualLinkTest;
using testing::VirtualWorker;

class QueueTimeoutTest : public VirtualLinkTest {
 protected:
  static ScheduleOptions With(absl::Duration timeout) {
    ScheduleOptions options = Ample();
    options.queue_timeout = timeout;
    return options;
  }
  void Start(absl::Duration timeout = absl::Milliseconds(500)) { StartLink(With(timeout)); }
  void SetTimeout(absl::Duration timeout) {
    executor_.Turn([&] { EXPECT_TRUE(loop_->Reconfigure(With(timeout)).ok()); });
  }
  VirtualWorker& Healthy() {
    VirtualWorker& worker = Serve("healthy:1", [](auto& call) { call.Answer("!"); });
    Connect(worker.address());
    return worker;
  }
  double Refusals(const std::string& reason) const {
    for (const auto& family : registry_.Collect()) {
      if (family.name != "sluice_queue_refusals_total") continue;
      for (const auto& metric : family.metric) {
        if (metric.label.front().value == reason) return metric.counter.value;
      }
    }
    return -1;
  }
};

TEST_F(QueueTimeoutTest, ACallThatWaitsForTheLinkEnds) {
  Start();
  const std::string worker = Healthy().address();
  SetLease(0);
  const TimePoint start = executor_.Now();
  const size_t first = Ask(worker);
  executor_.RunFor(milliseconds(200));
  const size_t second = Ask(worker);
  EXPECT_EQ(AwaitEnd(first).status,
            AtLimit("schedule.queue_timeout",
                    "the request was not sent within queue_timeout, 500ms; it waited for the link"));
  EXPECT_EQ(executor_.Now() - start, milliseconds(500));
  EXPECT_EQ(calls_[first].sent, 0);
  AwaitEnd(second);
  EXPECT_EQ(executor_.Now() - start, milliseconds(700));
  EXPECT_EQ(Refusals("timeout"), 2);
  SetLease(kAmpleBytes);
  EXPECT_TRUE(AwaitEnd(Ask(worker)).status.ok());
}

TEST_F(QueueTimeoutTest, ACallThatWaitsForItsWorkerIsUnavailable) {
  Start();
  loop_->workers().set_max_connections(1);
  VirtualWorker& hung = Serve("hung:1", nullptr, {.max_concurrent_streams = 1});
  Connect(hung.address());
  const size_t sent = Ask(hung.address());
  ASSERT_TRUE(AwaitCalls(hung, 1));
  const absl::Status status = AwaitEnd(Ask(hung.address())).status;
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(status.message()), HasSubstr("it waited for a free stream to hung:1"));
  EXPECT_EQ(calls_[sent].ended, 0) << "it was sent";
}

TEST_F(QueueTimeoutTest, ACallThatWasSentIsNotEnded) {
  Start();
  VirtualWorker& worker = Serve("slow:1", nullptr);
  Connect(worker.address());
  const size_t call = Ask(worker.address());
  ASSERT_TRUE(AwaitCalls(worker, 1));
  executor_.RunFor(std::chrono::seconds(10));
  ASSERT_EQ(calls_[call].ended, 0);
  worker.calls()[0]->Answer("!");
  worker.calls()[0]->connection().Flush();
  EXPECT_TRUE(AwaitEnd(call).status.ok());
  EXPECT_EQ(Refusals("timeout"), 0);
}

// The worker goes away before it has processed the request, so the call waits again.
TEST_F(QueueTimeoutTest, TheTimeBeginsAgainIfTheRequestWasNotProcessed) {
  Start();
  VirtualWorker& worker = Serve("slow:1", nullptr, {.max_concurrent_streams = 1});
  Connect(worker.address());
  const size_t call = Ask(worker.address());
  ASSERT_TRUE(AwaitCalls(worker, 1));
  executor_.RunFor(milliseconds(400));
  worker.calls()[0]->Reset(Http2Error::kRefusedStream);
  worker.calls()[0]->connection().Flush();
  ASSERT_TRUE(AwaitCalls(worker, 2));
  executor_.RunFor(milliseconds(400));
  EXPECT_EQ(calls_[call].ended, 0);
}

TEST_F(QueueTimeoutTest, AChangeAppliesToCallsThatWait) {
  Start(absl::InfiniteDuration());
  const std::string worker = Healthy().address();
  SetLease(0);
  const TimePoint start = executor_.Now();
  const size_t call = Ask(worker);
  executor_.RunFor(milliseconds(100));
  SetTimeout(absl::Milliseconds(300));
  SetTimeout(absl::InfiniteDuration());
  executor_.RunFor(milliseconds(1000));
  EXPECT_EQ(calls_[call].ended, 0);
  SetTimeout(absl::Milliseconds(1300));
  AwaitEnd(call);
  EXPECT_EQ(executor_.Now() - start, milliseconds(1300));
}

}  // namespace
}  // namespace sluice
