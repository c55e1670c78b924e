#include "lib/link/scheduled_stream.h"

#include <chrono>
#include <string>
#include <utility>

#include "tests/unit/http2/raw_frames.h"
#include "tests/unit/link/virtual_link_fixture.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasCode;
using testing::VirtualWorker;

// --- Headers, which no window limits.

class ScheduledStreamHeadersTest : public testing::VirtualLinkTest {
 protected:
  // Sends requests to the worker until the room for headers has adapted, and returns how many of 50 leave together.
  int64_t RequestsAfterResponses(VirtualWorker::Handler handler) {
    ScheduleOptions options;
    options.profile.buffer_bytes = 32 << 10;
    StartLink(options);
    const std::string address = Serve("worker:1", std::move(handler)).address();
    for (int i = 0; i < 50; ++i) AwaitEnd(Ask(address));
    Ask(address, 50, {.response_bytes = 100'000});
    const ScheduleState state = loop_->schedule().State();
    return state.ungranted_calls + state.in_flight_calls;
  }
};

TEST_F(ScheduledStreamHeadersTest, ErrorsWithDetailsLetFewRequestsLeave) {
  // The details are sent in base64, which takes a third more.
  const auto fail = [](auto& call) { call.Fail(absl::UnavailableError("an outage"), std::string(3000, '~')); };
  EXPECT_LE(RequestsAfterResponses(fail), (32 << 10) / 3 / 4000);
}

TEST_F(ScheduledStreamHeadersTest, SmallHeadersAndTrailersOfAMessageDoNot) {
  const auto answer = [](VirtualWorker::Call& call) {
    call.SendHead({{"trace", std::string(100, '~')}});
    call.SendData(FrameMessage("!"));
    call.SendTrailers(absl::OkStatus(), "", {{"trace", std::string(3000, '~')}});
  };
  EXPECT_EQ(RequestsAfterResponses(answer), 50);
}

// --- Resets, which servers consider an attack if there are many.

class ScheduledStreamResetTest : public testing::VirtualLinkTest {
 protected:
  void SetUp() override {
    StartLink();
    loop_->workers().set_max_connections(1);  // otherwise a connection that only has such calls ends
  }
  // Responds as a balancer without a backend, with a page that has not ended.
  static void SendPage(VirtualWorker::Call& call) {
    call.SendHeaders({{":status", "503"}, {"content-type", "text/html"}}, /*end_stream=*/false);
  }
  // Sends the length prefix of a message of a gigabyte.
  static void SendLargePrefix(VirtualWorker::Call& call) {
    call.SendHead();
    call.SendData(std::string("\0\x40\0\0\0", 5));
  }
  size_t Ended() const {
    size_t ended = 0;
    for (const CallRecord& call : calls_) ended += static_cast<size_t>(call.ended);
    return ended;
  }
  // Expects the resets of 400 calls as the allowance permits them, and no further connection.
  void ExpectAllowedResets(const VirtualWorker& worker) {
    EXPECT_EQ(worker.resets(), 15U);
    executor_.RunFor(seconds(30));
    EXPECT_GE(worker.resets(), 160U);
    EXPECT_LE(worker.resets(), 165U) << "Netty ends a connection at 200 in 30 s";
    EXPECT_TRUE(AwaitIdle());
    executor_.RunFor(milliseconds(50));  // the last reset reaches the worker
    EXPECT_EQ(worker.resets(), 400U);
    EXPECT_EQ(worker.connections().size(), 1U);
  }
};

TEST_F(ScheduledStreamResetTest, ResponsesThatAreWrongAreResetAsTheAllowancePermits) {
  const struct {
    std::string address;
    VirtualWorker::Handler handler;
    absl::StatusCode code;
  } cases[] = {{"pages:1", SendPage, absl::StatusCode::kUnavailable},
               {"large:1", SendLargePrefix, absl::StatusCode::kResourceExhausted}};
  for (const auto& [address, handler, code] : cases) {
    VirtualWorker& worker = Serve(address, handler);
    Connect(address);
    const size_t first = Ask(address, 400);
    executor_.RunFor(milliseconds(50));
    EXPECT_EQ(Ended(), calls_.size()) << "no call waits for its reset";
    for (size_t i = first; i < calls_.size(); ++i) ASSERT_THAT(calls_[i].status, HasCode(code)) << i;
    ExpectAllowedResets(worker);
  }
}

TEST_F(ScheduledStreamResetTest, CancelledCallsAreResetAsTheAllowancePermits) {
  VirtualWorker& worker = Serve("worker:1", nullptr);
  Connect(worker.address());
  const size_t first = Ask(worker.address(), 400);
  ASSERT_TRUE(AwaitCalls(worker, 400));
  executor_.Turn([&] {
    for (size_t i = 0; i < 400; ++i) CancelHere(first + i);
  });
  for (const CallRecord& call : calls_) EXPECT_EQ(call.status, absl::CancelledError("not needed"));
  executor_.RunFor(milliseconds(50));
  ExpectAllowedResets(worker);
}

// A fan-out that has ended may cancel a call that it has cancelled in the same turn.
TEST_F(ScheduledStreamResetTest, ACallThatIsCancelledTwiceUsesTheAllowanceOnce) {
  VirtualWorker& worker = Serve("worker:1", nullptr);
  Connect(worker.address());
  const size_t first = Ask(worker.address(), 15);
  ASSERT_TRUE(AwaitCalls(worker, 15));
  executor_.Turn([&] {
    for (size_t i = 0; i < 15; ++i) {
      CancelHere(first + i);
      CancelHere(first + i);
    }
  });
  executor_.RunFor(milliseconds(50));
  EXPECT_EQ(worker.resets(), 15U);
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(ScheduledStreamResetTest, ACallWhoseRequestHasNotLeftNeedsNoReset) {
  VirtualWorker& worker = Serve("worker:1", nullptr);
  Connect(worker.address());
  executor_.Turn([&] {
    const size_t first = AskHere(worker.address(), 300);
    for (size_t i = 0; i < 300; ++i) CancelHere(first + i);
  });
  for (const CallRecord& call : calls_) EXPECT_EQ(call.status, absl::CancelledError("not needed"));
  EXPECT_TRUE(AwaitIdle());
  EXPECT_EQ(worker.calls().size(), 0U);
  EXPECT_EQ(worker.resets(), 0U);
}

TEST_F(ScheduledStreamResetTest, ACallThatWaitsForItsResetMayEndBefore) {
  VirtualWorker& worker = Serve("worker:1", nullptr);
  Connect(worker.address());
  const size_t first = Ask(worker.address(), 20);
  ASSERT_TRUE(AwaitCalls(worker, 20));
  executor_.Turn([&] {
    for (size_t i = 0; i < 20; ++i) CancelHere(first + i);
  });
  // The worker disconnects before the allowance permits the next reset.
  worker.connections()[0]->Break();
  executor_.RunFor(milliseconds(50));
  EXPECT_TRUE(AwaitIdle());
  EXPECT_EQ(worker.resets(), 15U);
}

// Most servers end such calls themselves.
TEST_F(ScheduledStreamResetTest, CallsWhoseDeadlinePassesAreResetAsTheAllowancePermits) {
  VirtualWorker& worker = Serve("worker:1", nullptr);
  Connect(worker.address());
  const size_t first = Ask(worker.address(), 300, {.response_bytes = 100'000, .timeout = milliseconds(700)});
  ASSERT_TRUE(AwaitCalls(worker, 300));
  ASSERT_TRUE(executor_.RunUntil([&] { return Ended() == calls_.size(); }));
  executor_.RunFor(milliseconds(20));  // the resets reach the worker
  for (size_t i = first; i < 300; ++i) EXPECT_THAT(calls_[i].status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(worker.resets(), 15U);
  for (const auto& call : worker.calls()) call->Fail(absl::DeadlineExceededError("the server knows it, too"));
  worker.connections()[0]->Flush();
  executor_.RunFor(milliseconds(50));
  EXPECT_TRUE(AwaitIdle());
  EXPECT_EQ(worker.resets(), 15U);
}

// --- Abandoned calls that wait for their reset.

class ScheduledStreamDropTest : public testing::VirtualLinkTest {
 protected:
  static constexpr size_t kHung = 30;
  static constexpr size_t kBytes = 4'000'000;

  // The worker hangs in its first calls, which use up its allowance of resets.
  void SetUp() override {
    ScheduleOptions options;
    options.profile.buffer_bytes = 32 << 10;
    StartLink(options);
    Connect(worker_.address());
    const size_t hung = Ask(worker_.address(), kHung);
    ASSERT_TRUE(AwaitCalls(worker_, kHung));
    executor_.Turn([&] {
      for (size_t i = 0; i < kHung; ++i) CancelHere(hung + i);
    });
    dropped_ = Ask(worker_.address());
    ASSERT_TRUE(AwaitCalls(worker_, kHung + 1));
  }
  VirtualWorker::Call& call() { return *worker_.calls().back(); }
  size_t UnsentBytes() { return call().connection().session().unsent_bytes(call().stream()); }
  void Answer() {
    call().Answer(std::string(kBytes, 'x'));
    call().connection().Flush();
  }
  void ExpectEndBeforeItsReset() {
    EXPECT_EQ(calls_[dropped_].status, absl::CancelledError("not needed"));
    EXPECT_TRUE(executor_.RunUntil([&] { return call().closed(); }, milliseconds(2500)));
    EXPECT_EQ(UnsentBytes(), 0U);
  }

  VirtualWorker& worker_ = Serve("worker:1", nullptr);
  size_t dropped_ = 0;
};

TEST_F(ScheduledStreamDropTest, TheResponseComesAfterThoseThatAreWanted) {
  VirtualWorker& other = Serve("worker:2", [](auto& call) { call.Answer(std::string(kBytes, 'x')); });
  Connect(other.address());
  Answer();
  ASSERT_TRUE(executor_.RunUntil([&] { return UnsentBytes() < kBytes * 9 / 10; }));
  const size_t wanted = Ask(other.address());
  Cancel(dropped_);
  EXPECT_TRUE(AwaitEnd(wanted).status.ok());
  EXPECT_GT(UnsentBytes(), kBytes * 8 / 10);
  ExpectEndBeforeItsReset();
}

TEST_F(ScheduledStreamDropTest, AResponseThatBecomesReadyLaterComesToo) {
  Cancel(dropped_);
  executor_.RunFor(milliseconds(10));
  Answer();
  ExpectEndBeforeItsReset();
}

// --- Requests whose connection breaks.

using ScheduledStreamLossTest = testing::VirtualLinkTest;

TEST_F(ScheduledStreamLossTest, ARequestThatHasNotLeftIsSentAgain) {
  StartLink();
  VirtualWorker& worker = Serve("worker:1", [](auto& call) { call.Answer("!"); });
  Connect(worker.address());
  executor_.RunFor(seconds(2));  // the connection is old enough to be established again at once
  size_t tag = 0;
  executor_.Turn([&] {
    tag = AskHere(worker.address());
    worker.connections().back()->BreakHere();
  });
  EXPECT_TRUE(AwaitEnd(tag).status.ok()) << calls_[tag].status;
  EXPECT_EQ(worker.connections().size(), 2U);
  EXPECT_EQ(worker.calls().size(), 1U);
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(ScheduledStreamLossTest, ARequestThatHasLeftIsNot) {
  StartLink();
  VirtualWorker& worker = Serve("worker:1", nullptr);
  Connect(worker.address());
  executor_.RunFor(seconds(2));
  const size_t tag = Ask(worker.address());
  executor_.Turn([&] { worker.connections().back()->BreakHere(); });
  EXPECT_THAT(AwaitEnd(tag).status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(calls_[tag].sent, 1);
}

// The session itself resets a stream whose header list is too large. The server counts this reset, too.
TEST_F(ScheduledStreamResetTest, ResetsOfTheSessionCount) {
  VirtualWorker& worker = Serve("worker:1", nullptr);
  Connect(worker.address());
  const size_t first = Ask(worker.address(), 30);
  ASSERT_TRUE(AwaitCalls(worker, 30));
  // One entry of HPACK's table, repeated: 80 KB after decoding.
  const std::string field = "\x40" + raw::HpackString("x") + raw::HpackString(std::string(4000, 'v'));
  const std::string block = "\x88" + field + std::string(20, '\xbe');
  for (size_t i = 0; i < 10; ++i) {
    VirtualWorker::Call& call = *worker.calls()[i];
    call.connection().Flush(raw::Frame(raw::kHeaders, raw::kEndHeaders, call.stream(), block));
    EXPECT_THAT(AwaitEnd(first + i).status, HasCode(absl::StatusCode::kResourceExhausted));
  }
  for (size_t i = 10; i < 30; ++i) Cancel(first + i);
  executor_.RunFor(milliseconds(50));
  EXPECT_EQ(worker.resets(), 15U);
}

TEST_F(ScheduledStreamResetTest, AWorkerThatAsksForCalmIsResetLess) {
  VirtualWorker& worker = Serve("worker:1", nullptr);
  Connect(worker.address());
  executor_.RunFor(seconds(2));
  worker.connections()[0]->session().GoAway(Http2Error::kEnhanceYourCalm);
  worker.connections()[0]->Flush();
  EXPECT_TRUE(executor_.RunUntil([&] { return worker.connections().size() == 2; }));
  const size_t first = Ask(worker.address(), 200);
  ASSERT_TRUE(AwaitCalls(worker, 200));
  executor_.Turn([&] {
    for (size_t i = 0; i < 200; ++i) CancelHere(first + i);
  });
  executor_.RunFor(milliseconds(50));
  EXPECT_EQ(worker.resets(), 7U);
  executor_.RunFor(seconds(30));
  EXPECT_LE(worker.resets(), 83U);
  EXPECT_GE(worker.resets(), 80U);
}

}  // namespace
}  // namespace sluice
