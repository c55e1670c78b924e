// Workers with several connections.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/link/worker.h"
#include "tests/unit/link/virtual_link_fixture.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasCode;
using ::testing::SizeIs;
using testing::VirtualWorker;

class WorkerConnectionsTest : public testing::VirtualLinkTest {
 protected:
  void SetUp() override { StartLink(); }

  // Hangs in calls of this path, and responds to all others.
  static constexpr char kHang[] = "/test.Answers/Hang";
  VirtualWorker& ServeWithLimit(uint32_t streams, std::function<void(VirtualWorker::Connection&)> on_accept = nullptr) {
    return Serve("worker:1",
                 [](VirtualWorker::Call& call) {
                   if (call.head().path != kHang) call.Answer("!");
                 },
                 {.max_concurrent_streams = streams, .on_accept = std::move(on_accept)});
  }
  // Calls that hang.
  size_t Hold(const std::string& target, size_t calls) { return Ask(target, calls, {.path = kHang}); }
  // The same for one client of a proxy.
  size_t HoldFor(uint64_t client, const std::string& target, size_t calls) {
    const size_t first = calls_.size();
    executor_.Turn([&] {
      for (size_t i = 0; i < calls; ++i) AskHereFor(client, target, kHang);
    });
    return first;
  }
  size_t AskFor(uint64_t client, const std::string& target) {
    const size_t tag = calls_.size();
    executor_.Turn([&] { AskHereFor(client, target, "/test.Answers/Get"); });
    return tag;
  }
  void AskHereFor(uint64_t client, const std::string& target, const std::string& path) {
    users_.push_back(std::make_shared<User>(path, calls_, calls_.size()));
    calls_.emplace_back();
    ScheduledStream& stream = loop_->Take(std::make_unique<ScheduledStream>(
        *loop_, ScheduledStream::Options{.worker = WorkerOf(target), .response_bytes = 100, .client = client},
        users_.back()));
    calls_.back().call = &stream;
    BlockId block = 0;
    ScheduledStream* const call = &stream;
    EXPECT_TRUE(loop_->Submit({&call, 1}, TimePoint::max(), block).ok());
  }
  void CancelAll(size_t first, size_t calls) {
    executor_.Turn([&] {
      for (size_t i = first; i < first + calls; ++i) CancelHere(i);
    });
  }
  bool AwaitOpen(const VirtualWorker& worker, size_t calls) {
    return executor_.RunUntil([&] { return OpenCalls(worker) == calls; }, seconds(1));
  }
  static size_t OpenCalls(const VirtualWorker& worker) {
    return static_cast<size_t>(
        std::count_if(worker.calls().begin(), worker.calls().end(), [](const auto& call) { return !call->closed(); }));
  }
  static size_t OpenCallsOn(const VirtualWorker& worker, size_t connection) {
    return worker.connections()[connection]->session().streams();
  }
  size_t Waiting() { return loop_->workers().CountWaitingForStream(); }

 private:
  // A call of a client of a proxy.
  class User final : public StreamUser {
   public:
    User(std::string path, std::vector<CallRecord>& calls, size_t tag)
        : path_(std::move(path)), calls_(calls), tag_(tag) {}
    std::optional<Opening> BeginRequest(TimePoint, int64_t) override {
      return Opening{.head = ToHeaders({.path = path_, .authority = "worker"}), .data = FrameMessage("?")};
    }
    void OnRequestSent() override { ++calls_[tag_].sent; }
    void OnResponseHeld(HeldFor) override {}
    bool OnResponseHeaders(HeaderList, bool) override { return true; }
    bool OnResponseData(absl::string_view, bool) override { return true; }
    bool OnStreamOver(const StreamEnd* end, const absl::Status& why) override {
      CallRecord& record = calls_[tag_];
      ++record.ended;
      record.status = why;
      if (end != nullptr && end->kind == StreamEnd::Kind::kLost) record.status = absl::UnavailableError(end->why);
      record.call = nullptr;
      return why.ok();
    }
    int64_t WantedBytes() override { return 1 << 20; }

   private:
    const std::string path_;
    std::vector<CallRecord>& calls_;
    const size_t tag_;
  };

  std::vector<std::shared_ptr<User>> users_;
};

// --- Workers that allow few streams.

TEST_F(WorkerConnectionsTest, ACallThatFindsAllStreamsInUseGetsAConnection) {
  VirtualWorker& worker = ServeWithLimit(2);
  Connect(worker.address());
  Hold(worker.address(), 2);
  ASSERT_TRUE(AwaitOpen(worker, 2));
  const TimePoint start = executor_.Now();
  const size_t call = Ask(worker.address());
  ASSERT_TRUE(executor_.RunUntil([&] { return calls_[call].ended > 0; }, seconds(10)));
  EXPECT_TRUE(calls_[call].status.ok()) << calls_[call].status;
  EXPECT_LE(executor_.Now() - start, milliseconds(1));
  EXPECT_EQ(worker.open_connections(), 2u);
}

TEST_F(WorkerConnectionsTest, TheirNumberIsBounded) {
  loop_->workers().set_max_connections(3);
  VirtualWorker& worker = ServeWithLimit(2);
  Connect(worker.address());
  Hold(worker.address(), 6);
  ASSERT_TRUE(AwaitOpen(worker, 6));
  EXPECT_EQ(Waiting(), 0u);
  const size_t call = Ask(worker.address());
  executor_.RunFor(seconds(30));
  EXPECT_THAT(worker.connections(), SizeIs(3));
  EXPECT_EQ(calls_[call].ended, 0);
  EXPECT_EQ(Waiting(), 1u);
  worker.calls()[3]->Answer("!");
  worker.calls()[3]->connection().Flush();
  EXPECT_TRUE(AwaitEnd(call).status.ok());
  EXPECT_EQ(Waiting(), 0u);
}

TEST_F(WorkerConnectionsTest, OneIsAsManyAsThereWereOnce) {
  loop_->workers().set_max_connections(1);
  VirtualWorker& worker = ServeWithLimit(2);
  Connect(worker.address());
  Hold(worker.address(), 4);
  executor_.RunFor(seconds(10));
  EXPECT_THAT(worker.connections(), SizeIs(1));
  EXPECT_EQ(Waiting(), 2u);
}

TEST_F(WorkerConnectionsTest, ExtraOnesEndWhenTheyAreIdle) {
  VirtualWorker& worker = ServeWithLimit(1);
  Connect(worker.address());
  const size_t first = Ask(worker.address(), 50);
  for (size_t i = 0; i < 50; ++i) ASSERT_TRUE(AwaitEnd(first + i).status.ok());
  EXPECT_EQ(worker.open_connections(), 4u);
  EXPECT_EQ(loop_->worker_table().CountReached().connected, 1) << "it counts workers";
  Hold(worker.address(), 1);
  executor_.RunFor(seconds(50));
  EXPECT_EQ(worker.open_connections(), 4u);
  executor_.RunFor(seconds(25));
  EXPECT_EQ(worker.open_connections(), 1u) << "all but the one with a call";
  Cancel(50);
  executor_.RunFor(seconds(300));
  EXPECT_EQ(worker.open_connections(), 1u) << "never the last";
  EXPECT_TRUE(AwaitEnd(Ask(worker.address())).status.ok());
  EXPECT_THAT(worker.connections(), SizeIs(4));
}

TEST_F(WorkerConnectionsTest, ABreakEndsTheCallsOfOneConnection) {
  VirtualWorker& worker = ServeWithLimit(2);
  Connect(worker.address());
  const size_t first = Hold(worker.address(), 4);
  ASSERT_TRUE(AwaitOpen(worker, 4));
  executor_.RunFor(seconds(2));
  worker.connections()[0]->Break();
  executor_.RunFor(milliseconds(10));
  for (const size_t i : {0, 1}) EXPECT_THAT(calls_[first + i].status, HasCode(absl::StatusCode::kUnavailable)) << i;
  for (const size_t i : {2, 3}) EXPECT_EQ(calls_[first + i].ended, 0) << i;
  EXPECT_EQ(loop_->worker_table().CountReached().connected, 1);
  EXPECT_THAT(worker.connections(), SizeIs(2)) << "no call needs another";
  EXPECT_TRUE(AwaitEnd(Ask(worker.address())).status.ok());
  EXPECT_THAT(worker.connections(), SizeIs(3));
}

// The requests of the broken connection that the worker has not seen go to the others.
TEST_F(WorkerConnectionsTest, ARequestThatHasNotLeftTakesAFreeStreamOfAnother) {
  VirtualWorker& worker = ServeWithLimit(2);
  Connect(worker.address());
  const size_t first = Hold(worker.address(), 3);
  ASSERT_TRUE(AwaitOpen(worker, 3));
  Cancel(first);
  ASSERT_TRUE(AwaitOpen(worker, 2));
  executor_.RunFor(seconds(2));
  size_t call = 0;
  executor_.Turn([&] {
    call = AskHere(worker.address());
    worker.connections()[0]->BreakHere();
  });
  EXPECT_TRUE(AwaitEnd(call).status.ok()) << calls_[call].status;
  EXPECT_THAT(worker.connections(), SizeIs(2));
}

TEST_F(WorkerConnectionsTest, AGoAwayOnOneLeavesTheOthers) {
  VirtualWorker& worker = ServeWithLimit(2);
  Connect(worker.address());
  Hold(worker.address(), 3);
  ASSERT_TRUE(AwaitOpen(worker, 3));
  executor_.RunFor(seconds(2));
  worker.connections()[0]->session().GoAway(Http2Error::kNoError);
  worker.connections()[0]->Flush();
  EXPECT_TRUE(AwaitEnd(Ask(worker.address())).status.ok());
  EXPECT_THAT(worker.connections(), SizeIs(2)) << "the other has a free stream";
  EXPECT_EQ(OpenCalls(worker), 3u);
  for (const size_t i : {0, 1}) worker.calls()[i]->Answer("!");
  worker.connections()[0]->Flush();
  executor_.RunFor(milliseconds(1));
  EXPECT_EQ(worker.open_connections(), 1u);
}

// A worker may allow each host only one connection.
TEST_F(WorkerConnectionsTest, IfThereCanBeNoOtherCallsWaitForAStream) {
  size_t accepted = 0;
  VirtualWorker& worker = ServeWithLimit(2, [&accepted](VirtualWorker::Connection& connection) {
    if (++accepted > 1) connection.Break();
  });
  Connect(worker.address());
  const size_t first = Hold(worker.address(), 3);
  executor_.RunFor(seconds(60));
  EXPECT_LE(accepted, 200u) << "with a back-off";
  EXPECT_GE(accepted, 5u);
  EXPECT_EQ(calls_[first + 2].ended, 0);
  EXPECT_EQ(worker.open_connections(), 1u);
  EXPECT_TRUE(WorkerOf(worker.address())->failure().ok()) << "it is connected";
  CancelAll(first, 3);
  executor_.RunFor(seconds(10));
  const size_t before = accepted;
  executor_.RunFor(seconds(60));
  EXPECT_EQ(accepted, before) << "no call needs another connection";
}

TEST_F(WorkerConnectionsTest, ALossOfTheLastIsRepairedAtOnceEvenAfterAFailureOfAnExtra) {
  size_t accepted = 0;
  bool extra_fails = true;
  VirtualWorker& worker = ServeWithLimit(1, [&](VirtualWorker::Connection& connection) {
    if (++accepted > 1 && extra_fails) connection.Break();
  });
  Connect(worker.address());
  Hold(worker.address(), 2);
  executor_.RunFor(seconds(20));
  extra_fails = false;
  worker.connections()[0]->Break();
  const TimePoint start = executor_.Now();
  EXPECT_TRUE(AwaitEnd(Ask(worker.address())).status.ok());
  EXPECT_LE(executor_.Now() - start, milliseconds(2));
}

// --- Clients of a proxy, whose streams all end if the client goes away.

constexpr uint64_t kOne = 1;
constexpr uint64_t kOther = 2;

TEST_F(WorkerConnectionsTest, ManyStreamsOfAClientThatIsGoneEndWithTheirConnection) {
  VirtualWorker& worker = ServeWithLimit(1000);
  Connect(worker.address());
  const size_t first = HoldFor(kOne, worker.address(), 600);
  ASSERT_TRUE(AwaitOpen(worker, 600));
  CancelAll(first, 600);
  executor_.RunFor(seconds(2));
  EXPECT_EQ(OpenCalls(worker), 0u);
  EXPECT_LE(worker.resets(), 15u + 10u) << "within the allowance";
  EXPECT_EQ(worker.open_connections(), 1u);
  EXPECT_TRUE(AwaitEnd(AskFor(kOther, worker.address())).status.ok());
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(WorkerConnectionsTest, SoDoThoseOfAClientThatCalledAfterAnother) {
  VirtualWorker& worker = ServeWithLimit(1000);
  Connect(worker.address());
  const size_t watch = HoldFor(kOther, worker.address(), 2);
  const size_t first = HoldFor(kOne, worker.address(), 600);
  ASSERT_TRUE(AwaitOpen(worker, 602));
  CancelAll(first, 600);
  executor_.RunFor(seconds(2));
  EXPECT_EQ(OpenCalls(worker), 2u);
  for (const size_t i : {0, 1}) EXPECT_EQ(calls_[watch + i].ended, 0) << "not those of the other";
}

TEST_F(WorkerConnectionsTest, SoDoThoseOfAClientThatCalledBeforeAnother) {
  VirtualWorker& worker = ServeWithLimit(1000);
  Connect(worker.address());
  const size_t first = HoldFor(kOne, worker.address(), 600);
  ASSERT_TRUE(AwaitOpen(worker, 600));
  const size_t watch = HoldFor(kOther, worker.address(), 2);
  ASSERT_TRUE(AwaitOpen(worker, 602));
  EXPECT_EQ(worker.open_connections(), 2u);
  CancelAll(first, 600);
  executor_.RunFor(seconds(2));
  EXPECT_EQ(OpenCalls(worker), 2u);
  for (const size_t i : {0, 1}) EXPECT_EQ(calls_[watch + i].ended, 0);
}

TEST_F(WorkerConnectionsTest, ClientsWithFewStreamsShareOne) {
  VirtualWorker& worker = ServeWithLimit(1000);
  Connect(worker.address());
  for (uint64_t client = 1; client <= 20; ++client) HoldFor(client, worker.address(), 15);
  ASSERT_TRUE(AwaitOpen(worker, 300));
  EXPECT_THAT(worker.connections(), SizeIs(1));
}

TEST_F(WorkerConnectionsTest, IfThereCanBeNoOtherClientsShareOne) {
  size_t accepted = 0;
  VirtualWorker& worker = ServeWithLimit(1000, [&accepted](VirtualWorker::Connection& connection) {
    if (++accepted > 1) connection.Break();
  });
  Connect(worker.address());
  HoldFor(kOne, worker.address(), 100);
  HoldFor(kOther, worker.address(), 100);
  EXPECT_TRUE(AwaitOpen(worker, 200));
}

TEST_F(WorkerConnectionsTest, CallsThatNoConnectionSuitsLetOthersPass) {
  VirtualWorker& worker = ServeWithLimit(20);
  Connect(worker.address());
  HoldFor(kOther, worker.address(), 1);
  ASSERT_TRUE(AwaitOpen(worker, 1));
  worker.SetPause(VirtualWorker::Pause::kProcess);  // it accepts no connection
  HoldFor(kOne, worker.address(), 30);
  HoldFor(kOther, worker.address(), 3);
  executor_.RunFor(milliseconds(10));
  EXPECT_EQ(OpenCalls(worker), 1u + 15u + 3u);
  EXPECT_EQ(Waiting(), 15u);
  worker.SetPause(VirtualWorker::Pause::kNone);
  EXPECT_TRUE(AwaitOpen(worker, 34));
  EXPECT_EQ(OpenCallsOn(worker, 0), 19u);
}

// All calls of the others go on, and new ones take another connection.
TEST_F(WorkerConnectionsTest, ASharedConnectionIsLeftAndEndsWithItsLastCall) {
  loop_->workers().set_max_connections(2);
  VirtualWorker& worker = ServeWithLimit(1000);
  Connect(worker.address());
  const size_t many = HoldFor(3, worker.address(), 16);
  HoldFor(kOther, worker.address(), 1);
  const size_t first = HoldFor(kOne, worker.address(), 600);
  ASSERT_TRUE(AwaitOpen(worker, 617));
  ASSERT_EQ(OpenCallsOn(worker, 0), 16u + 585u) << "there is no connection for it alone";
  CancelAll(first, 600);
  executor_.RunFor(seconds(2));
  EXPECT_GT(OpenCallsOn(worker, 0), 500u) << "they wait for their resets";
  EXPECT_TRUE(AwaitEnd(AskFor(3, worker.address())).status.ok());
  EXPECT_EQ(worker.calls().back()->connection().requests(), 1u + 15u + 1u) << "the call is on the other connection";
  for (size_t i = many; i < many + 15; ++i) Cancel(i);
  EXPECT_EQ(calls_[many + 15].ended, 0);
  EXPECT_GT(OpenCallsOn(worker, 0), 1u);
  Cancel(many + 15);
  executor_.RunFor(milliseconds(300));
  EXPECT_EQ(OpenCalls(worker), 1u) << "all others have ended with the connection";
}

// One client has long calls, and the other cancels many.
TEST_F(WorkerConnectionsTest, ConnectionsThatWereLeftAreFew) {
  loop_->workers().set_max_connections(2);
  VirtualWorker& worker = ServeWithLimit(1000);
  Connect(worker.address());
  for (int i = 0; i < 20; ++i) {
    HoldFor(kOther, worker.address(), 1);
    const size_t first = HoldFor(kOne, worker.address(), 14);
    executor_.RunFor(seconds(1));
    CancelAll(first, 14);
    executor_.RunFor(milliseconds(700));
    EXPECT_LE(worker.open_connections(), 4u) << i;
  }
  EXPECT_GT(worker.open_connections(), 2u);
  for (const CallRecord& call : calls_) EXPECT_TRUE(call.ended == 0 || absl::IsCancelled(call.status)) << call.status;
}

TEST_F(WorkerConnectionsTest, AConnectionIsNotLeftForACallAmongMany) {
  VirtualWorker& worker = ServeWithLimit(1000);
  Connect(worker.address());
  const size_t first = HoldFor(kOne, worker.address(), 200);
  ASSERT_TRUE(AwaitOpen(worker, 200));
  CancelAll(first, 60);
  executor_.RunFor(seconds(5));
  EXPECT_THAT(worker.connections(), SizeIs(1));
  EXPECT_LE(worker.resets(), 15u + 25u);
  EXPECT_GE(worker.resets(), 15u + 24u);
}

// Requests that are cancelled faster than they may be reset must not cost a handshake each.
TEST_F(WorkerConnectionsTest, AConnectionServesForASecondOrMore) {
  VirtualWorker& worker = ServeWithLimit(1000);
  Connect(worker.address());
  for (int i = 0; i < 1000; ++i) {
    const size_t call = HoldFor(kOne, worker.address(), 1);
    executor_.RunFor(milliseconds(10));
    Cancel(call);
  }
  EXPECT_LE(worker.connections().size(), 12u) << "in 10 s";
  EXPECT_LE(OpenCalls(worker), 200u);
  EXPECT_LE(worker.resets(), 65u);
}

TEST_F(WorkerConnectionsTest, AConnectionIsNotLeftIfThereCanBeNoOther) {
  size_t accepted = 0;
  VirtualWorker& worker = ServeWithLimit(1000, [&accepted](VirtualWorker::Connection& connection) {
    if (++accepted > 1) connection.Break();
  });
  Connect(worker.address());
  const size_t first = HoldFor(kOne, worker.address(), 100);
  ASSERT_TRUE(AwaitOpen(worker, 100));
  CancelAll(first, 100);
  executor_.RunFor(seconds(5));
  EXPECT_LE(OpenCalls(worker), 61u) << "they are reset one after the other";
  EXPECT_TRUE(AwaitEnd(AskFor(kOther, worker.address())).status.ok());
}

}  // namespace
}  // namespace sluice
