// The number of calls that may wait for one worker.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/link/link_loop.h"
#include "tests/unit/link/link_loop_fixture.h"
#include "tests/unit/link/virtual_link_fixture.h"
#include "tests/unit/net/silent_listener.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using testing::CallRecord;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::SilentListener;
using testing::TestHttp2Server;
using testing::VirtualLinkTest;
using testing::VirtualWorker;

class WaitingCallsTest : public testing::LinkLoopTest {
 protected:
  void Start(int64_t queue_limit) {
    ScheduleOptions options = Grants();
    options.queue_limit = queue_limit;
    StartLink(options);
  }
  std::vector<size_t> AskMany(const std::string& target, size_t calls) {
    return Ask(std::vector<std::string>(calls, target));
  }
  void ExpectServes(size_t calls) {
    Connect(server_.address());
    for (const size_t tag : AskMany(server_.address(), calls)) ASSERT_TRUE(AwaitEnd(tag).status.ok());
  }
  // Returns the number of refused calls.
  size_t Refused(const std::vector<size_t>& tags) {
    return static_cast<size_t>(std::count_if(
        tags.begin(), tags.end(), [this](size_t tag) { return absl::IsResourceExhausted(owner_.Get(tag).status); }));
  }
  // The queue must have room for 1,000 calls.
  void ExpectAHungWorkerLeavesHalf() {
    TestHttp2Server hung([](TestHttp2Server::Call&) {}, {.max_concurrent_streams = 10});
    Connect(hung.address());
    const std::vector<size_t> waiting = AskMany(hung.address(), 900);
    EXPECT_TRUE(AwaitState([](const ScheduleState& state) { return state.parked_calls == state.waiting_calls; }));
    EXPECT_LE(State().parked_calls, 500);
    EXPECT_GE(Refused(waiting), 390u);
    ExpectServes(300);
  }

  TestHttp2Server server_{[](TestHttp2Server::Call& call) { call.Answer("!"); }};  // a healthy worker
};

TEST_F(WaitingCallsTest, OneWorkerThatDoesNotConnectLeavesRoomForTheCallsOfOthers) {
  Start(1000);
  SilentListener silent;
  const std::vector<size_t> waiting = AskMany(silent.address(), 900);
  EXPECT_EQ(State().parked_calls, 500);
  EXPECT_EQ(Refused(waiting), 400u);
  ExpectServes(300);
}

TEST_F(WaitingCallsTest, OneWorkerThatHangsLeavesRoomForTheCallsOfOthers) {
  Start(1000);
  ExpectAHungWorkerLeavesHalf();
}

TEST_F(WaitingCallsTest, ManyWorkersThatHangLeaveRoomForTheCallsOfOthers) {
  Start(1000);
  std::vector<std::unique_ptr<SilentListener>> rack;
  for (int i = 0; i < 4; ++i) {
    rack.push_back(std::make_unique<SilentListener>());
    for (int block = 0; block < 5; ++block) AskMany(rack.back()->address(), 50);
  }
  EXPECT_EQ(State().parked_calls, 3 * 250 + 125);
  ExpectServes(100);
}

TEST_F(WaitingCallsTest, TheErrorHasTheWorkerTheCallsAndTheBound) {
  Start(200);
  SilentListener silent;
  EXPECT_EQ(Refused(AskMany(silent.address(), 100)), 0u);
  const CallRecord one_more = AwaitEnd(AskOne(silent.address()));
  EXPECT_THAT(one_more.status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(one_more.status.message()),
              AllOf(HasSubstr(silent.address()), HasSubstr("100 calls wait for this worker"),
                    HasSubstr("the bound is 99"), HasSubstr("queue_limit is 200")));
}

TEST_F(WaitingCallsTest, AFewCallsMayWaitForEachWorkerHoweverFullTheQueueIs) {
  Start(200);
  std::vector<std::unique_ptr<SilentListener>> workers;
  std::vector<std::string> targets;
  for (int i = 0; i < 4; ++i) {
    workers.push_back(std::make_unique<SilentListener>());
    targets.insert(targets.end(), 50, workers.back()->address());
  }
  EXPECT_EQ(Refused(Ask(targets)), 0u) << "as when all workers are connected for the first time";
  EXPECT_EQ(State().parked_calls, 200);
}

TEST_F(WaitingCallsTest, CallsThatEndOrLeaveMakeRoom) {
  Start(200);
  SilentListener silent;
  std::vector<size_t> waiting = AskMany(silent.address(), 100);
  EXPECT_EQ(Refused(waiting), 0u);
  for (const size_t tag : waiting) Cancel(tag);
  EXPECT_EQ(Refused(AskMany(silent.address(), 100)), 0u);
  for (int round = 0; round < 3; ++round) ExpectServes(90);
}

TEST_F(WaitingCallsTest, CallsThatAWorkerTakesMakeRoomForOthers) {
  Start(200);
  TestHttp2Server slow([](TestHttp2Server::Call& call) { call.Answer("!"); }, {.max_concurrent_streams = 1});
  Connect(slow.address());
  for (int round = 0; round < 3; ++round) {
    for (const size_t tag : AskMany(slow.address(), 100)) ASSERT_TRUE(AwaitEnd(tag).status.ok());
  }
}

// Each request has 6 bytes.
class WaitingBytesTest : public WaitingCallsTest {
 protected:
  void Start(int64_t queue_bytes) {
    ScheduleOptions options = Grants();
    options.queue_bytes = queue_bytes;
    StartLink(options);
  }
  static constexpr int64_t kRequestBytes = 6;
};

TEST_F(WaitingBytesTest, OneWorkerThatHangsLeavesHalfToTheCallsOfOthers) {
  Start(1000 * kRequestBytes);
  ExpectAHungWorkerLeavesHalf();
}

TEST_F(WaitingBytesTest, TheErrorsHaveTheBytesAndTheBound) {
  Start(10 * kRequestBytes);
  SilentListener silent;
  EXPECT_EQ(Refused(AskMany(silent.address(), 5)), 0u);
  const CallRecord one_more = AwaitEnd(AskOne(silent.address()));
  EXPECT_THAT(one_more.status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(one_more.status.message()),
              AllOf(HasSubstr(silent.address()), HasSubstr("30 bytes of requests wait for this worker"),
                    HasSubstr("the bound is 24"), HasSubstr("queue_bytes is 60")));
  const absl::Status block = Refusal(std::vector<std::string>(6, server_.address()));
  EXPECT_THAT(block, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(block.message(), "the queue has no room for 36 bytes of requests: 30 wait, queue_bytes is 60");
}

TEST_F(WaitingBytesTest, CallsThatEndOrLeaveMakeRoom) {
  Start(20 * kRequestBytes);
  SilentListener silent;
  std::vector<size_t> waiting = AskMany(silent.address(), 10);
  EXPECT_EQ(Refused(waiting), 0u);
  for (const size_t tag : waiting) Cancel(tag);
  EXPECT_EQ(Refused(AskMany(silent.address(), 10)), 0u);
  for (int round = 0; round < 3; ++round) ExpectServes(9);
}

// Workers that accept every request, and are too slow for the bytes that they are granted.
class SlowWorkerCallsTest : public VirtualLinkTest {
 protected:
  void Start(int64_t queue_limit) {
    ScheduleOptions options;
    options.queue_limit = queue_limit;
    StartLink(options);
  }
  // Announces each response, and sends nothing of it.
  static void Hang(VirtualWorker::Call& call) {
    call.SendHead();
    call.SendData(std::string("\0\0\0\x27\x10", 5));
  }
  // Makes 1,000 calls per second.
  void AskSteadily(const std::string& target, std::chrono::seconds time) {
    for (auto left = time / std::chrono::milliseconds(10); left > 0; --left) {
      Ask(target, 10, {.response_bytes = 10'000});
      executor_.RunFor(std::chrono::milliseconds(10));
    }
  }
  size_t Refused() const {
    return static_cast<size_t>(std::count_if(calls_.begin(), calls_.end(), [](const CallRecord& call) {
      return call.ended > 0 && absl::IsResourceExhausted(call.status);
    }));
  }
};

TEST_F(SlowWorkerCallsTest, OneWorkerThatStopsSendingLeavesRoomForTheCallsOfOthers) {
  Start(1000);
  VirtualWorker& hung = Serve("hung:1", Hang);
  VirtualWorker& healthy = Serve("healthy:1", [](auto& call) { call.Answer("!"); });
  Connect(hung.address());
  Connect(healthy.address());
  AskSteadily(hung.address(), std::chrono::seconds(2));
  EXPECT_LE(loop_->schedule().State().waiting_calls, 520);
  EXPECT_GE(Refused(), 900u);
  const size_t first = Ask(healthy.address(), 400);
  for (size_t i = 0; i < 400; ++i) ASSERT_TRUE(AwaitEnd(first + i).status.ok()) << i;
}

TEST_F(SlowWorkerCallsTest, AHealthyWorkerMayFillTheQueue) {
  Start(1000);
  VirtualWorker& healthy = Serve("healthy:1", [](auto& call) { call.Answer(std::string(10'000, '.')); });
  Connect(healthy.address());
  const size_t first = Ask(healthy.address(), 1000, {.response_bytes = 10'000});
  for (size_t i = 0; i < 1000; ++i) ASSERT_TRUE(AwaitEnd(first + i).status.ok()) << i;
}

}  // namespace
}  // namespace sluice
