// Applications that are slower than their link: the bytes that wait for callbacks are bounded, and all messages arrive
// in the end.
#include <chrono>
#include <string>
#include <vector>

#include "tests/unit/fan_out/fan_out_memory_fixture.h"
#include "tests/unit/grpc_wire/test_messages.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FanOutMemoryTest;
using testing::HasCode;
using testing::kMessageBytes;
using testing::VirtualWorker;

constexpr size_t kMessages = 100;

std::string MessageOf(size_t number) {
  return std::string(kMessageBytes, static_cast<char>('a' + number % 26));
}

// A stream of ten times the bound.
void Stream(VirtualWorker::Call& call) {
  call.SendHead();
  for (size_t i = 0; i < kMessages; ++i) call.SendData(FrameMessage(MessageOf(i)));
  call.SendTrailers();
}

VirtualWorker::Handler SaysBytes(size_t bytes) {
  return [bytes](VirtualWorker::Call& call) { call.Answer(std::string(bytes, 'x')); };
}

TEST_F(FanOutMemoryTest, AStreamThatIsNotMergedStopsAtTheBound) {
  Start(1, Stream);
  Asked& asked = AskUnmerged(1, {.server_streaming = true});
  EXPECT_EQ(Holds(), 1);
  const VirtualWorker::Call& call = *workers_[0]->calls().at(0);
  const size_t unsent_bytes = call.connection().session().unsent_bytes(call.stream());
  executor_.RunFor(std::chrono::minutes(5));
  EXPECT_EQ(call.connection().session().unsent_bytes(call.stream()), unsent_bytes) << "not by a few bytes either";
  callbacks_.GoOn();
  ExpectOk(asked);
  ASSERT_EQ(asked.merged[0].size(), kMessages);
  for (size_t i = 0; i < kMessages; ++i) EXPECT_TRUE(asked.merged[0][i] == MessageOf(i)) << i;
}

// The worker sends empty messages without a grant, because they fit the room for a length prefix.
class FanOutEmptyMessagesTest : public FanOutMemoryTest {
 protected:
  static constexpr size_t kEmpty = 2000;

  void StartEmpty() {
    Start(1, [](VirtualWorker::Call& call) {
      call.SendHead();
      for (size_t i = 0; i < kEmpty; ++i) call.SendData(FrameMessage(""));
      call.SendTrailers();
    });
  }
};

TEST_F(FanOutEmptyMessagesTest, AStreamThatIsNotMergedStopsAtTheBound) {
  StartEmpty();
  Asked& asked = AskUnmerged(1, {.server_streaming = true});
  const VirtualWorker::Call& call = *workers_[0]->calls().at(0);
  EXPECT_GT(call.connection().session().unsent_bytes(call.stream()), kEmpty);
  GoOnAndExpect(kEmpty, asked);
}

TEST_F(FanOutEmptyMessagesTest, AWorkerIsNotLateWhileItsStreamWaitsForTheMerge) {
  StartEmpty();
  callbacks_.Stop();
  Asked& asked = AskFirst(1, {.server_streaming = true, .attempt_timeout = absl::Seconds(1)});
  executor_.RunFor(seconds(10));
  GoOnAndExpect(kEmpty, asked);
}

// No wake-up is lost, even if callbacks stop often.
TEST_F(FanOutMemoryTest, AStreamGoesOnWithItsMerge) {
  Start(3, Stream);
  Asked& asked = AskFirst(3, {.server_streaming = true, .merge = [this](size_t, std::string&) {
                                callbacks_.Spend(milliseconds(20));
                                return absl::OkStatus();
                              }});
  EXPECT_LE(MostWaiting(milliseconds(20 * kMessages)), kMemory);
  ExpectOk(asked);
  EXPECT_EQ(asked.messages, 3 * kMessages);
  EXPECT_LE(executor_.Now().time_since_epoch(), std::chrono::hours(1) + 3 * kMessages * milliseconds(20) + seconds(1))
      << "and the application never waits for it";
}

TEST_F(FanOutMemoryTest, UnaryResponsesStopAtTheBound) {
  Start(100, SaysBytes(kMessageBytes));
  Asked& asked = AskUnmerged(100, {});
  GoOnAndExpect(100u, asked);
}

class FanOutUnaskedTest : public FanOutMemoryTest, public ::testing::WithParamInterface<SchedulePolicy> {
 protected:
  // Fast workers: requests leave with their grants, so responses arrive unrequested.
  void StartUnasked() {
    ScheduleOptions options;
    options.policy = GetParam();
    options.profile.buffer_bytes = 4 << 20;
    Start(kCalls, SaysBytes(1000), options);
  }
  static constexpr size_t kCalls = 400;
};

INSTANTIATE_TEST_SUITE_P(By, FanOutUnaskedTest,
                         ::testing::Values(SchedulePolicy::kGrants, SchedulePolicy::kRolling, SchedulePolicy::kBatches,
                                           SchedulePolicy::kUnscheduled),
                         [](const auto& info) { return std::string(SchedulePolicyName(info.param)); });

TEST_P(FanOutUnaskedTest, ResponsesThatAreNotMergedStopAtTheBound) {
  StartUnasked();
  Asked& asked = AskUnmerged(kCalls, {.response_bytes = 1000});
  GoOnAndExpect(kCalls, asked);
}

// The budget has room for a few early responses at a time, so most requests leave without a grant and get it later.
TEST_F(FanOutMemoryTest, ResponsesThatComeEarlyStopAtTheBound) {
  constexpr size_t kCalls = 1000;
  ScheduleOptions options;
  options.profile.buffer_bytes = 64 << 10;
  Start(kCalls, SaysBytes(1000), options);
  Asked& asked = AskUnmerged(kCalls, {.response_bytes = 1000});
  GoOnAndExpect(kCalls, asked);
}

TEST_P(FanOutUnaskedTest, TheDeadlineEndsCallsThatWaitToBeSent) {
  StartUnasked();
  callbacks_.Stop();
  Asked& asked = AskFirst(kCalls, {.response_bytes = 1000, .timeout = absl::Seconds(2), .fail_limit = kCalls});
  executor_.RunFor(seconds(3));
  callbacks_.GoOn();
  ASSERT_TRUE(AwaitEnd(asked));
  EXPECT_EQ(asked.result->answered + asked.result->failures.size(), kCalls);
  EXPECT_GT(asked.result->answered, 0u);
  EXPECT_GT(asked.result->failures.size(), 0u);
  Asked& next = AskFirst(kCalls, {.response_bytes = 1000});
  ASSERT_TRUE(AwaitEnd(next));
  EXPECT_EQ(next.messages, kCalls);
}

// The share of a fan-out in the memory holds the messages that arrive during a slow merge. Its share of the thread
// merges them.
TEST_F(FanOutMemoryTest, AFanOutKeepsItsRateBesideOneWhoseMergeIsSlow) {
  static constexpr size_t kPaced = 1000;
  static constexpr milliseconds kPace(1);
  const auto paced = [this](VirtualWorker::Call& call) {
    call.SendHead();
    for (size_t i = 0; i < kPaced; ++i) {
      executor_.After(static_cast<int>(i) * kPace, [&call, i] {
        call.SendData(FrameMessage(MessageOf(i)));
        if (i + 1 == kPaced) call.SendTrailers();
        call.connection().Flush();
      });
    }
  };
  Start(
      2, [&](VirtualWorker::Call& call) { call.request() == "0" ? Stream(call) : paced(call); }, Grants(), 1 << 20);
  Asked& slow = Ask({0}, {.server_streaming = true, .merge = [this](size_t, std::string&) {
                            callbacks_.Spend(milliseconds(20));
                            return absl::OkStatus();
                          }});
  executor_.RunFor(milliseconds(100));
  const TimePoint began = executor_.Now();
  Asked& quick = Ask({1}, {.server_streaming = true});
  ASSERT_TRUE(AwaitEnd(quick));
  EXPECT_TRUE(quick.result->status.ok()) << quick.result->status;
  EXPECT_EQ(quick.messages, kPaced);
  EXPECT_LE(executor_.Now() - began, kPaced * kPace * 20 / 19);
  EXPECT_LT(slow.messages, kMessages);
  ASSERT_TRUE(AwaitEnd(slow));
  EXPECT_TRUE(slow.result->status.ok()) << slow.result->status;
  EXPECT_EQ(slow.messages, kMessages);
}

TEST_F(FanOutMemoryTest, AFanOutThatIsNotMergedLeavesRoomToAnother) {
  Start(2, Stream);
  callbacks_.Stop();
  Ask({0}, {.server_streaming = true});
  executor_.RunFor(seconds(10));
  const int64_t one_bytes = waiting_bytes();
  Ask({1}, {.server_streaming = true});
  executor_.RunFor(seconds(10));
  EXPECT_GE(waiting_bytes() - one_bytes, kMemory / 5);
  EXPECT_LE(waiting_bytes(), kMemory);
}

TEST_F(FanOutMemoryTest, MessagesThatAreLargerThanTheBoundComeOneByOne) {
  constexpr size_t kBytes = 300'000;
  Start(5, SaysBytes(kBytes));
  callbacks_.Stop();
  Asked& asked = AskFirst(5, {});
  EXPECT_EQ(MostWaiting(), kBytes);
  callbacks_.GoOn();
  EXPECT_EQ(MostWaiting(milliseconds(100)), kBytes);
  ExpectOk(asked);
  EXPECT_EQ(asked.messages, 5u);
}

TEST_F(FanOutMemoryTest, CompressedMessagesWaitAsTheyCame) {
  constexpr size_t kBombBytes = 16 << 20;
  const std::string bomb = CompressedMessage(std::string(kBombBytes, '\0'));
  ASSERT_LT(bomb.size(), 20'000u);
  Start(20, [&bomb](VirtualWorker::Call& call) {
    call.SendHead({{"grpc-encoding", "gzip"}});
    call.SendData(bomb);
    call.SendTrailers();
  });
  callbacks_.Stop();
  int64_t most_bytes = 0;
  Asked& asked = AskFirst(20, {.merge = [&](size_t, std::string& message) {
                            most_bytes = std::max(most_bytes, waiting_bytes());
                            EXPECT_EQ(message.size(), kBombBytes);
                            message.clear();
                            return absl::OkStatus();
                          }});
  EXPECT_LE(MostWaiting(), kMemory);
  callbacks_.GoOn();
  ExpectOk(asked);
  EXPECT_GE(most_bytes, static_cast<int64_t>(kBombBytes)) << "it is seen while it is merged";
  EXPECT_LE(most_bytes, static_cast<int64_t>(kBombBytes) + kMemory) << "and there is one at a time";
}

TEST_F(FanOutMemoryTest, ACallMayFailWhileItIsBehind) {
  Start(1, Stream);
  callbacks_.Stop();
  Asked& asked = AskFirst(1, {.server_streaming = true});
  executor_.RunFor(seconds(1));
  ASSERT_GT(Holds(), 0);
  workers_[0]->connections().at(0)->Break();
  executor_.RunFor(seconds(1));
  EXPECT_FALSE(asked.result.has_value()) << "the messages before are not merged";
  callbacks_.GoOn();
  ASSERT_TRUE(AwaitEnd(asked));
  EXPECT_THAT(asked.result->status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_LT(asked.messages, kMessages);
  EXPECT_EQ(waiting_bytes(), 0);
}

TEST_F(FanOutMemoryTest, AFanOutMayBeCancelledWhileItIsBehind) {
  Start(2, Stream);
  callbacks_.Stop();
  Asked& asked = AskFirst(2, {.server_streaming = true});
  executor_.RunFor(seconds(1));
  ASSERT_GT(Holds(), 0);
  executor_.Turn([&] { asked.run->Cancel(absl::CancelledError("not needed")); });
  executor_.RunFor(seconds(1));
  for (const auto& worker : workers_) {
    const auto& end = worker->calls().at(0)->end();
    EXPECT_TRUE(end.has_value() && end->kind == StreamEnd::Kind::kReset);
  }
  callbacks_.GoOn();
  ASSERT_TRUE(AwaitEnd(asked));
  EXPECT_THAT(asked.result->status, HasCode(absl::StatusCode::kCancelled));
  EXPECT_EQ(waiting_bytes(), 0);
  Asked& next = AskFirst(2, {.server_streaming = true});
  ASSERT_TRUE(AwaitEnd(next));
  EXPECT_EQ(next.messages, 2 * kMessages);
}

TEST_F(FanOutMemoryTest, TheDeadlineEndsAFanOutThatIsBehind) {
  Start(2, Stream);
  callbacks_.Stop();
  Asked& asked = AskFirst(2, {.server_streaming = true, .timeout = absl::Seconds(2), .fail_limit = 2});
  executor_.RunFor(seconds(3));
  for (const auto& worker : workers_) {
    const auto& end = worker->calls().at(0)->end();
    EXPECT_TRUE(end.has_value() && end->kind == StreamEnd::Kind::kReset);
  }
  callbacks_.GoOn();
  ASSERT_TRUE(AwaitEnd(asked));
  ASSERT_EQ(asked.result->failures.size(), 2u);
  EXPECT_THAT(asked.result->failures[0].status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(asked.result->failures[0].status.message()),
              ::testing::HasSubstr("the response was ready and waited for room in callback_memory_bytes for"));
  EXPECT_EQ(waiting_bytes(), 0);
}

// Without a schedule, windows hold the responses back.
class FanOutUnscheduledMemoryTest : public FanOutMemoryTest {
 protected:
  static constexpr int64_t kBound = 1 << 20;
  static constexpr size_t kLarge = 300'000;

  void StartUnscheduled(size_t workers, const VirtualWorker::Handler& handler) {
    ScheduleOptions options;
    options.policy = SchedulePolicy::kUnscheduled;
    Start(workers, handler, options, kBound);
  }
  // Bytes that the link has taken from the workers of one call each.
  int64_t SentBytes(size_t workers, size_t response_bytes) const {
    int64_t bytes = 0;
    for (size_t i = 0; i < workers; ++i) {
      const VirtualWorker::Call& call = *workers_[i]->calls().at(0);
      bytes += static_cast<int64_t>(response_bytes - call.connection().session().unsent_bytes(call.stream()));
    }
    return bytes;
  }
};

TEST_F(FanOutUnscheduledMemoryTest, LargeResponsesStopAtTheBound) {
  StartUnscheduled(20, SaysBytes(kLarge));
  callbacks_.Stop();
  Asked& asked = AskFirst(20, {});
  EXPECT_LE(MostWaiting(), kBound);
  EXPECT_LE(SentBytes(20, kLarge), kBound + (20 << 16)) << "and 64 KB of each";
  EXPECT_GT(Holds(), 0);
  GoOnAndExpect(20, asked);
}

TEST_F(FanOutUnscheduledMemoryTest, AStreamStopsAtTheBound) {
  static constexpr size_t kLargeMessages = 40;
  StartUnscheduled(1, [](VirtualWorker::Call& call) {
    call.SendHead();
    for (size_t i = 0; i < kLargeMessages; ++i) call.SendData(FrameMessage(std::string(kLarge, 'x')));
    call.SendTrailers();
  });
  callbacks_.Stop();
  Asked& asked = AskFirst(1, {.server_streaming = true});
  EXPECT_LE(MostWaiting(), kBound);
  EXPECT_LE(SentBytes(1, kLarge * kLargeMessages), kBound + (1 << 16));
  GoOnAndExpect(kLargeMessages, asked);
}

// The windows hold a part of the next messages open, so small ones do not wait for a window each.
TEST_F(FanOutUnscheduledMemoryTest, AStreamOfSmallMessagesStopsAtTheBound) {
  static constexpr size_t kSmallMessages = 3000;
  StartUnscheduled(1, [](VirtualWorker::Call& call) {
    call.SendHead();
    for (size_t i = 0; i < kSmallMessages; ++i) call.SendData(FrameMessage(std::string(1000, 'x')));
    call.SendTrailers();
  });
  callbacks_.Stop();
  Asked& asked = AskFirst(1, {.server_streaming = true});
  EXPECT_LE(MostWaiting(), kBound);
  EXPECT_GE(waiting_bytes(), kBound / 3);
  GoOnAndExpect(kSmallMessages, asked);
}

TEST_F(FanOutUnscheduledMemoryTest, ARunThatIsAliveAfterASwitchOfThePolicyStopsAtTheBound) {
  StartUnscheduled(20, SaysBytes(kLarge));
  callbacks_.Stop();
  Asked& asked = AskFirst(20, {});
  executor_.RunFor(seconds(1));
  executor_.Turn([this] { EXPECT_TRUE(loop_->Reconfigure(Grants()).ok()); });
  EXPECT_LE(MostWaiting(), kBound);
  GoOnAndExpect(20, asked);
  EXPECT_EQ(loop_->schedule().State().in_flight_bytes, 0);
}

}  // namespace
}  // namespace sluice
