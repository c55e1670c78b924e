#include "lib/link/wire_call.h"

#include <chrono>
#include <memory>
#include <string>

#include <malloc.h>

#include "tests/unit/link/virtual_link_fixture.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using testing::VirtualWorker;
using WireCallTest = testing::VirtualLinkTest;

TEST_F(WireCallTest, AStatusWhoseTextEndsWithASpaceArrives) {
  StartLink();
  VirtualWorker& worker = Serve("worker:1", [](auto& call) { call.Fail(absl::NotFoundError("lost: ")); });
  EXPECT_EQ(AwaitEnd(Ask(worker.address())).status, absl::NotFoundError("lost: "));
}

// Other gRPC clients do the same. The status may come from a server behind the worker.
TEST_F(WireCallTest, AWorkersOwnCancelledReachesTheCaller) {
  StartLink();
  VirtualWorker& resets = Serve("resets:1", [](auto& call) { call.Reset(Http2Error::kCancel); });
  VirtualWorker& fails = Serve("fails:1", [](auto& call) { call.Fail(absl::CancelledError("the backend went away")); });
  EXPECT_EQ(AwaitEnd(Ask(resets.address())).status, absl::CancelledError("stream was reset with CANCEL (8)"));
  EXPECT_EQ(AwaitEnd(Ask(fails.address())).status, absl::CancelledError("the backend went away"));
}

size_t AllocatedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// More calls are abandoned than may be reset at once. Their streams stay open, and the rest of their responses may
// arrive.
TEST_F(WireCallTest, ACallThatWasGivenUpKeepsNothingOfItsMessage) {
  constexpr size_t kCalls = 60;
  constexpr size_t kHalf = 500'000;
  if (AllocatedBytes() == 0) GTEST_SKIP() << "the allocator does not say what it has given out";
  StartLink();
  VirtualWorker& worker = Serve("worker:1", [](auto& call) {
    call.SendHead();
    call.SendData(FrameMessage(std::string(2 * kHalf, 'x')).substr(0, kHalf));
  });
  const size_t first = Ask(worker.address(), kCalls);
  executor_.RunFor(std::chrono::seconds(100));
  const size_t before = AllocatedBytes();
  ASSERT_GE(before, kCalls * kHalf);
  executor_.Turn([&] {
    for (size_t i = 0; i < kCalls; ++i) CancelHere(first + i);
  });
  EXPECT_GE(before - AllocatedBytes(), kCalls * kHalf * 9 / 10);
  EXPECT_EQ(worker.resets(), 0u);
}

// An application that merges slowly: responses are ready, and their messages have no room.
class WireCallRoomTest : public testing::VirtualLinkTest {
 protected:
  static constexpr int64_t kMemory = 1 << 20;
  static constexpr int64_t kMessageBytes = 12'000;  // more than may arrive before the response is ready
  static constexpr milliseconds kThink{20};
  static constexpr size_t kCalls = 3;

  void SetUp() override {
    ScheduleOptions options;
    options.profile.capacity_bytes_per_second = 2e6;
    options.profile.buffer_bytes = 32 << 10;
    StartLink(options);
    loop_->callback_memory().SetBound(kMemory);
    Serve(kWorker, [this](VirtualWorker::Call& call) {
      executor_.After(kThink, [&call] {
        call.Answer(std::string(kMessageBytes, 'x'));
        call.connection().Flush();
      });
    });
    // Repeat until the worker's share is the whole budget.
    for (int i = 0; i < 30; ++i) {
      const size_t first = Ask(kWorker, kCalls, options_);
      for (size_t tag = first; tag < first + kCalls; ++tag) AwaitEnd(tag);
    }
  }
  void TearDown() override {
    options_.memory.reset();
    calls_.clear();
    VirtualLinkTest::TearDown();
  }
  // Sends `calls` requests while the memory is full, and runs for 1 s, in which all responses become ready. Returns the
  // first tag.
  size_t AskWithoutRoom(size_t calls) {
    options_.memory->Hold(kMemory);
    const size_t first = Ask(kWorker, calls, options_);
    executor_.RunFor(std::chrono::seconds(1));
    return first;
  }
  void MakeRoom() {
    executor_.Turn([this] { options_.memory->Release(kMemory); });
  }
  ScheduleState state() const { return loop_->schedule().State(); }
  WorkerLoad load() { return loop_->schedule().Load(WorkerOf(kWorker)->schedule_id()); }

  const std::string kWorker = "worker:1";
  CallOptions options_{.response_bytes = kMessageBytes};
};

TEST_F(WireCallRoomTest, ASlowMergeLeavesTheShareOfItsWorker) {
  options_.memory = std::make_shared<CallbackMemory::Account>(loop_->callback_memory());
  const int64_t share_bytes = load().share_bytes;
  for (int i = 0; i < 5; ++i) {
    const size_t first = AskWithoutRoom(kCalls);
    MakeRoom();
    for (size_t tag = first; tag < first + kCalls; ++tag) {
      EXPECT_EQ(AwaitEnd(tag).messages, std::vector({std::string(kMessageBytes, 'x')}));
    }
  }
  EXPECT_EQ(load().share_bytes, share_bytes);
}

TEST_F(WireCallRoomTest, ResponsesThatWaitForRoomHoldUpNoRequests) {
  options_.memory = std::make_shared<CallbackMemory::Account>(loop_->callback_memory());
  constexpr size_t calls = 60;  // more than there is room for headers
  const size_t first = AskWithoutRoom(calls);
  EXPECT_EQ(state().ungranted_calls, 0);
  EXPECT_EQ(state().straggling_calls, 0);
  for (size_t tag = first; tag < first + calls; ++tag) EXPECT_EQ(calls_[tag].messages.size(), 0u);
  MakeRoom();
  for (size_t tag = first; tag < first + calls; ++tag) EXPECT_TRUE(AwaitEnd(tag).status.ok());
}

}  // namespace
}  // namespace sluice
