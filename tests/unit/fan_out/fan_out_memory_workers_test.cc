// Workers that hang or are slow in the middle of their messages: other workers get the memory that these claimed.
#include <chrono>
#include <string>

#include "tests/unit/fan_out/fan_out_memory_fixture.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::kMessageBytes;
using testing::VirtualWorker;

class FanOutMemoryWorkersTest : public testing::FanOutMemoryTest {
 protected:
  // The first `hung` workers send `sent_bytes`, at most their whole message, and never end the call.
  static Handler HangAfter(size_t sent_bytes, size_t hung) {
    return [sent_bytes, hung](VirtualWorker::Call& call) {
      const std::string message(kMessageBytes, 'x');
      if (std::stoul(call.request()) >= hung) return call.Answer(message);
      call.SendHead();
      call.SendData(FrameMessage(message).substr(0, sent_bytes));
    };
  }
  // The worker sends its message in parts, one every 100 ms.
  void Trickle(VirtualWorker::Call& call, size_t message_bytes, size_t part_bytes) {
    call.SendHead();
    const std::string message = FrameMessage(std::string(message_bytes, 'x'));
    milliseconds when(0);
    for (size_t sent = 0; sent < message.size(); sent += part_bytes, when += milliseconds(100)) {
      executor_.After(when,
                      [&call, part = message.substr(sent, part_bytes), last = sent + part_bytes >= message.size()] {
                        call.SendData(part);
                        if (last) call.SendTrailers();
                        call.connection().Flush();
                      });
    }
  }
};

// The application is not to blame for claims of workers that hang.
TEST_F(FanOutMemoryWorkersTest, WorkersThatHangInTheirMessagesDoNotStopTheOthers) {
  constexpr size_t kHung = 20;
  Start(100, HangAfter(kMessageBytes / 2, kHung));
  Asked& asked = AskFirst(100, {.timeout = absl::Minutes(5), .fail_limit = kHung});
  executor_.RunFor(seconds(10));
  EXPECT_EQ(asked.messages, 100 - kHung);
  ExpectOk(asked);
}

TEST_F(FanOutMemoryWorkersTest, SlowWorkersDoNotStopTheOthers) {
  constexpr size_t kSlow = 20;
  ScheduleOptions options = Grants();
  options.budget_bytes = 512 << 10;  // room for the responses of all slow workers
  const auto handler = [this](VirtualWorker::Call& call) {
    if (std::stoul(call.request()) >= kSlow) return call.Answer(std::string(kMessageBytes, 'x'));
    Trickle(call, kMessageBytes, kMessageBytes / 100);
  };
  Start(100, handler, options);
  Asked& asked = AskFirst(100, {});
  executor_.RunFor(seconds(2));
  EXPECT_EQ(asked.messages, 100 - kSlow);
  ExpectOk(asked);
  EXPECT_EQ(asked.messages, 100u);
}

TEST_F(FanOutMemoryWorkersTest, ASlowWorkerInALargeMessageDoesNotStopOtherFanOuts) {
  constexpr size_t kLarge = 300'000;
  Start(2, [this](VirtualWorker::Call& call) {
    call.request() == "0" ? Trickle(call, kLarge, kLarge / 300) : call.Answer(std::string(kLarge, 'x'));
  });
  Asked& slow = Ask({0}, {});
  executor_.RunFor(milliseconds(100));
  Asked& quick = Ask({1}, {});
  executor_.RunFor(seconds(1));
  EXPECT_EQ(quick.messages, 1u);
  ExpectOk(slow);
}

// Hung workers use up the budget, and the other workers wait for the link. Their claims must not age.
TEST_F(FanOutMemoryWorkersTest, ResponsesThatWaitForTheLinkStopAtTheBound) {
  constexpr size_t kHung = 10;
  ScheduleOptions options = Grants();
  options.budget_bytes = kMessageBytes + 1000;
  Start(100, HangAfter(kMessageBytes / 2, kHung), options);
  callbacks_.Stop();
  Asked& asked = AskFirst(100, {.timeout = absl::Minutes(5), .fail_limit = kHung});
  EXPECT_LE(MostWaiting(seconds(20)), kMemory);
  callbacks_.GoOn();
  executor_.RunFor(seconds(20));
  EXPECT_EQ(asked.messages, 100 - kHung);
  ExpectOk(asked);
}

// The messages have arrived, but the status does not arrive.
TEST_F(FanOutMemoryWorkersTest, WorkersThatHangBehindTheirMessagesDoNotStopTheOthers) {
  constexpr size_t kHung = 20;
  Start(100, HangAfter(std::string::npos, kHung));
  Asked& asked = AskFirst(100, {.timeout = absl::Minutes(5), .fail_limit = kHung});
  executor_.RunFor(seconds(10));
  EXPECT_EQ(asked.messages, 100 - kHung);
  ExpectOk(asked);
}

}  // namespace
}  // namespace sluice
