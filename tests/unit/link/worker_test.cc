#include "lib/link/worker.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "tests/unit/link/virtual_link_fixture.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::SizeIs;
using testing::VirtualLinkTest;
using testing::VirtualWorker;

// --- Connections that run out of stream numbers.

class WorkerStreamNumbersTest : public VirtualLinkTest {
 protected:
  // Limits each connection to this many stream numbers.
  void StartLinkWith(uint32_t numbers) {
    StartLink();
    loop_->workers().session_options().first_stream = (1u << 31) - 1 - 2 * (numbers - 1);
  }
  size_t Answered() const {
    return static_cast<size_t>(std::count_if(calls_.begin(), calls_.end(), [](const CallRecord& call) {
      return call.ended == 1 && call.status.ok() && call.sent == 1;
    }));
  }

  static constexpr size_t kCalls = 10'000;
  static constexpr uint32_t kNumbers = 100;
};

TEST_F(WorkerStreamNumbersTest, CallsOneAfterAnotherAreAllAnswered) {
  StartLinkWith(kNumbers);
  VirtualWorker& worker = Serve("worker:1", [](auto& call) { call.Answer("!"); });
  Connect(worker.address());
  const TimePoint start = executor_.Now();
  for (size_t i = 0; i < kCalls; ++i) ASSERT_TRUE(AwaitEnd(Ask(worker.address())).status.ok()) << i;
  EXPECT_EQ(Answered(), kCalls);
  EXPECT_THAT(worker.connections(), SizeIs(kCalls / kNumbers + 1));
  for (size_t i = 0; i < kCalls / kNumbers; ++i) EXPECT_EQ(worker.connections()[i]->requests(), kNumbers) << i;
  // Each call takes a round trip. A back-off of 200 ms before each connection would take 20 s.
  EXPECT_LT(executor_.Now() - start, kCalls * milliseconds(1));
}

TEST_F(WorkerStreamNumbersTest, CallsAllAtOnceAreAllAnswered) {
  StartLinkWith(kNumbers);
  VirtualWorker& worker = Serve("worker:1", [](auto& call) { call.Answer("!"); });
  Ask(worker.address(), kCalls);
  EXPECT_TRUE(executor_.RunUntil([&] { return Answered() == kCalls; })) << Answered();
  EXPECT_TRUE(AwaitIdle());
  for (const auto& connection : worker.connections()) EXPECT_LE(connection->requests(), kNumbers);
}

TEST_F(WorkerStreamNumbersTest, OpenStreamsFinishOnTheOldConnection) {
  StartLinkWith(2);
  VirtualWorker& worker = Serve("worker:1", nullptr);
  Connect(worker.address());
  const size_t first = Ask(worker.address(), 3);
  ASSERT_TRUE(AwaitCalls(worker, 3));
  EXPECT_THAT(worker.connections(), SizeIs(2));
  EXPECT_EQ(worker.open_connections(), 2U);
  for (const size_t i : {2, 1, 0}) {
    worker.calls()[i]->Answer(std::to_string(i));
    worker.calls()[i]->connection().Flush();
    EXPECT_THAT(AwaitEnd(first + i).messages, ElementsAre(std::to_string(i)));
  }
  executor_.RunFor(milliseconds(1));
  EXPECT_EQ(worker.open_connections(), 1U) << "the old one is closed after its last stream";
}

// A call that ends before its request leaves also uses a number.
TEST_F(WorkerStreamNumbersTest, TheLastNumberMayBeOfACallThatNeverLeaves) {
  StartLinkWith(1);
  VirtualWorker& worker = Serve("worker:1", [](auto& call) { call.Answer("!"); });
  Connect(worker.address());
  executor_.Turn([&] { CancelHere(AskHere(worker.address(), 1)); });
  EXPECT_TRUE(AwaitEnd(Ask(worker.address())).status.ok());
}

// --- Connections that go away.

using WorkerGoAwayTest = VirtualLinkTest;

TEST_F(WorkerGoAwayTest, AGoAwayInTheFirstBytesCounts) {
  StartLink();
  size_t accepted = 0;
  VirtualWorker& worker =
      Serve("worker:1", [](auto& call) { call.Answer("!"); }, {.on_accept = [&accepted](auto& connection) {
              if (++accepted <= 2) connection.session().GoAway(Http2Error::kNoError);
            }});
  EXPECT_TRUE(AwaitEnd(Ask(worker.address())).status.ok()) << calls_[0].status;
  EXPECT_THAT(worker.connections(), SizeIs(3));
  executor_.RunFor(milliseconds(1));
  EXPECT_EQ(worker.open_connections(), 1U);
}

// --- Calls that wait for a stream.

using WorkerWaitTest = VirtualLinkTest;

// The next call may use the stream, and is cancelled before the schedule lets it leave.
TEST_F(WorkerWaitTest, ACallThatDoesNotUseItsStreamLeavesItToTheNext) {
  StartLink();
  VirtualWorker& worker = Serve("worker:1", [](auto& call) { call.Answer("!"); }, {.max_concurrent_streams = 1});
  Connect(worker.address());
  const size_t first = Ask(worker.address(), 3);
  SetLease(0);
  EXPECT_TRUE(AwaitEnd(first).status.ok());
  Cancel(first + 1);
  SetLease(kAmpleBytes);
  EXPECT_TRUE(AwaitEnd(first + 2).status.ok()) << calls_[first + 2].status;
}

TEST_F(WorkerWaitTest, ACallWhoseHeadersAreTooLargeLeavesItsStreamToTheNext) {
  StartLink();
  VirtualWorker& worker = Serve("worker:1", [](auto& call) { call.Answer("!"); }, {.max_concurrent_streams = 1});
  Connect(worker.address());
  const size_t first = Ask(worker.address());
  const size_t large = Ask(worker.address(), 1, {.path = std::string(100'000, 'x')});
  const size_t last = Ask(worker.address());
  EXPECT_TRUE(AwaitEnd(first).status.ok());
  EXPECT_THAT(AwaitEnd(large).status, testing::HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(AwaitEnd(last).status.ok()) << calls_[last].status;
}

// --- Workers whose last user releases them within an event of the link.

// A call to one worker has passed its deadline. Its owner releases the other worker when the call ends.
class WorkerEndTest : public VirtualLinkTest {
 protected:
  static constexpr auto kTimeout = std::chrono::microseconds(150);

  void SetUp() override {
    StartLink();
    Connect(stays_.address());
    on_ended_ = [this](size_t) { workers_.erase(goes_.address()); };
  }
  void SetLease(int64_t bytes) {
    executor_.Turn(
        [&] { EXPECT_TRUE(loop_->SetLease({.bytes = bytes, .link_bytes = 4 << 20, .plan_bytes = 4 << 20}).ok()); });
  }
  // The call waits for a budget. The schedule detects that it is late only at an event of the link.
  void AskAndMakeItLate() {
    executor_.set_timer_lateness(std::chrono::seconds(1));
    Ask(stays_.address(), 1, {.timeout = kTimeout});
  }
  void ExpectGone() {
    EXPECT_THAT(AwaitEnd(0).status, testing::HasCode(absl::StatusCode::kDeadlineExceeded));
    EXPECT_EQ(workers_.count(goes_.address()), 0U);
    executor_.RunFor(std::chrono::seconds(2));
    EXPECT_EQ(goes_.open_connections(), 0U);
    EXPECT_TRUE(AwaitIdle());
    EXPECT_EQ(loop_->worker_table().CountReached().wanted, 1);
  }

  VirtualWorker& stays_ = Serve("stays:1", nullptr);
  VirtualWorker& goes_ = Serve("goes:1", nullptr);
};

TEST_F(WorkerEndTest, ItsHandshakeMayBeAboutToBegin) {
  SetLease(0);
  executor_.Turn([&] { WorkerOf(goes_.address())->Connect(); });
  executor_.RunFor({});
  AskAndMakeItLate();
  executor_.RunFor(2 * kTimeout);
  ASSERT_EQ(calls_[0].ended, 0);
  SetLease(kAmpleBytes);  // starts the handshake, after the end of the call
  EXPECT_EQ(calls_[0].ended, 1);
  ExpectGone();
}

TEST_F(WorkerEndTest, ItsHandshakeMayWaitForRoom) {
  SetLease(0);
  executor_.Turn([&] { WorkerOf(goes_.address())->Connect(); });
  executor_.RunFor({});
  AskAndMakeItLate();
  executor_.RunFor(2 * kTimeout);
  SetLease(0);
  EXPECT_EQ(calls_[0].ended, 1);
  SetLease(kAmpleBytes);
  ExpectGone();
}

// The end of its handshake is the event.
TEST_F(WorkerEndTest, ItMayJustHaveConnected) {
  executor_.Turn([&] { WorkerOf(goes_.address())->Connect(); });
  executor_.RunFor({});
  SetLease(0);
  AskAndMakeItLate();
  ExpectGone();
  EXPECT_THAT(goes_.connections(), SizeIs(1));
}

// Each pod has a different address.
TEST_F(WorkerEndTest, ItsRowAndItsShareAreForgottenAfterAWhile) {
  on_ended_ = nullptr;
  std::vector<uint32_t> ids;
  for (size_t i = 0; i < WorkerTable::kMaxGone + 10; ++i) {
    VirtualWorker& pod = Serve("pod-" + std::to_string(i), [](auto& call) { call.Answer("!"); });
    EXPECT_TRUE(AwaitEnd(Ask(pod.address())).status.ok());
    ids.push_back(WorkerOf(pod.address())->schedule_id());
    EXPECT_LE(ids.back(), WorkerTable::kMaxGone + 3) << "with the worker that stays";
    EXPECT_GT(loop_->schedule().Load(ids.back()).share_bytes, 0);
    EXPECT_EQ(loop_->schedule().Load(ids.back()).ended_calls, 1) << "not with those of another pod";
    executor_.Turn([&] { workers_.erase(pod.address()); });
    EXPECT_EQ(loop_->schedule().Load(ids.back()).ended_calls, 1) << "it may come back";
    if (i >= WorkerTable::kMaxGone) {
      const uint32_t oldest = ids[i - WorkerTable::kMaxGone];
      EXPECT_EQ(loop_->schedule().Load(oldest).share_bytes, 0) << "the schedule forgot it";
    }
  }
}

// Like a client's connection that the proxy has closed. A failure shows in the sanitizer.
TEST_F(WorkerEndTest, ATaskThatTheLinkDidNotGetToMayBeItsLastOwner) {
  executor_.Turn([&] {
    loop_->AtEndOfTurn([worker = WorkerOf(goes_.address())] {});
    workers_.clear();
    loop_.reset();
  });
}

// Its look-up is the event.
TEST_F(WorkerEndTest, ItMayJustBeAboutToAskForRoom) {
  SetLease(0);
  AskAndMakeItLate();
  executor_.RunFor(2 * kTimeout);
  executor_.Turn([&] { WorkerOf(goes_.address())->Connect(); });
  ExpectGone();
}

}  // namespace
}  // namespace sluice
