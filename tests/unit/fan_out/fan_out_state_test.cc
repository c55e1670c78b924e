#include "lib/fan_out/fan_out_state.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/fan_out/fan_out_run.h"
#include "lib/fan_out/merge_sink.h"
#include "lib/grpc_wire/request.h"
#include "prometheus/registry.h"
#include "tests/has_code.h"
#include "tests/simulation/event_queue.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Virtual time, and workers that accept connections only when the test permits it. A worker implements just enough
// HTTP/2 to be connected, and never responds. There is one for each test. Not thread-safe.
class QuietWorld final : public Executor {
 public:
  void Turn(const std::function<void()>& task) {
    ++turns_;
    task();
    if (end_of_turn_) end_of_turn_();
  }
  void RunFor(TimePoint::duration time) {
    const TimePoint end = Now() + time;
    bool over = false;
    events_.At(end, [&over] { over = true; });
    while (!over) events_.Step(end);
  }
  void Accept(const std::string& address) {
    StreamSocketEvents& client = *sockets_.at(address);
    Turn([&client] {
      client.OnConnected();
      client.OnBytes(absl::string_view("\0\0\0\4\0\0\0\0\0", 9));  // SETTINGS
    });
  }
  void Disconnect(const std::string& address) {
    StreamSocketEvents& client = *sockets_.at(address);
    Turn([&client] { client.OnDisconnected(absl::UnavailableError("reset by the test")); });
  }
  size_t turns() const { return turns_; }

  TimePoint Now() const override { return events_.now(); }
  void Post(std::function<void()> task) override {
    events_.After({}, [this, task = std::move(task)] { Turn(task); });
  }
  void SetEndOfTurn(std::function<void()> task) override { end_of_turn_ = std::move(task); }
  void SetTimer(TimePoint time, std::function<void()> task) override {
    events_.Cancel(timer_);
    timer_ = {};
    if (time != TimePoint::max()) timer_ = events_.At(time, [this, task = std::move(task)] { Turn(task); });
  }
  double Random() override { return 0.5; }
  std::shared_ptr<void> Resolve(const std::string& target, OnResolved on_resolved) override {
    auto asked = std::make_shared<OnResolved>(std::move(on_resolved));
    Post([target, weak = std::weak_ptr<OnResolved>(asked)] {
      const auto question = weak.lock();
      if (question == nullptr) return;
      const OnResolved answer = *question;  // the owner may drop it during the call
      answer(std::vector<WorkerAddress>{{target}});
    });
    return asked;
  }
  std::unique_ptr<StreamSocket> Connect(const WorkerAddress& address, const ConnectOptions&,
                                        StreamSocketEvents& events) override {
    sockets_[address.text] = &events;
    return std::make_unique<Socket>();
  }

 private:
  class Socket final : public StreamSocket {
   public:
    void Write(std::string) override {}
    size_t unsent_bytes() const override { return 0; }
    void SetReading(bool) override {}
    std::optional<TcpSocket> Tcp() const override { return std::nullopt; }
  };

  testing::EventQueue events_;
  std::function<void()> end_of_turn_;
  testing::EventQueue::Id timer_;
  std::map<std::string, StreamSocketEvents*> sockets_;  // of the last connection to each address
  size_t turns_ = 0;
};

class FanOutStateTest : public ::testing::Test {
 protected:
  static constexpr size_t kWorkers = 1024;  // many workers, so that few calls wait for each of them

  static std::string AddressOf(size_t worker) { return absl::StrCat("worker-", worker, ":7000"); }
  void SetWorkers(size_t count) {
    auto addresses = std::make_shared<std::vector<std::string>>();
    for (size_t i = 0; i < count; ++i) addresses->push_back(AddressOf(i));
    world_.Turn([&] { fan_out_.SetWorkers(addresses); });
    addresses_ = std::move(addresses);
  }
  void TearDown() override {
    world_.Turn([this] { fan_out_.Close(absl::CancelledError("the test is over"), [] {}); });
  }

  // Connects, and sets `unconnected_` when Connect calls back.
  void Connect(absl::Duration timeout) {
    world_.Turn([&] {
      fan_out_.Connect(timeout, [this](std::vector<size_t> unconnected) {
        EXPECT_FALSE(unconnected_.has_value()) << "twice";
        unconnected_ = std::move(unconnected);
      });
    });
    world_.RunFor(milliseconds(10));  // names are looked up, and the handshakes begin
  }

  // Asks the workers in turn, starting with `first`.
  void Ask(size_t first, size_t asks, absl::Duration timeout, FanOut::Done done) {
    const std::shared_ptr<const WorkerSet> workers = fan_out_.SetOf(addresses_);
    FanOutRun::Spec spec{.path = "/test.Answers/Get", .workers = workers};
    for (size_t i = 0; i < asks; ++i) {
      const size_t worker = (first + i) % workers->workers.size();
      spec.asks.push_back({.request = request_, .workers = {worker}, .primary = worker, .response_bytes = 10});
    }
    spec.limits.deadline = world_.Now() + absl::ToChronoNanoseconds(timeout);
    spec.limits.fail_limit = asks;
    auto sink = std::make_shared<MergeSink>(
        fan_out_, [](size_t, std::string&) { return absl::OkStatus(); }, std::move(done),
        MergeSink::Options{.stop_merging = std::make_shared<std::atomic<bool>>(false)});
    const auto run = FanOutRun::Make(fan_out_, std::move(spec), sink);
    sink->SetRun(run);
    run->Begin();
  }

  prometheus::Registry registry_;
  LinkMetrics metrics_{registry_};
  QuietWorld world_;
  LinkLoop link_{world_, {}, metrics_};
  InlineCallbacks callbacks_;
  FanOutState fan_out_{link_, callbacks_, nullptr};
  FanOutState::Addresses addresses_;
  const std::shared_ptr<const std::string> request_ = std::make_shared<const std::string>(FrameMessage("?"));
  std::optional<std::vector<size_t>> unconnected_;
};

TEST_F(FanOutStateTest, ConnectEndsInTheTurnInWhichTheLastWorkerConnects) {
  SetWorkers(3);
  Connect(absl::Minutes(1));
  for (const size_t worker : {2, 0}) world_.Accept(AddressOf(worker));
  EXPECT_FALSE(unconnected_.has_value());
  world_.Accept(AddressOf(1));
  ASSERT_TRUE(unconnected_.has_value());
  EXPECT_THAT(*unconnected_, IsEmpty());
}

// A check of ten thousand workers every millisecond would use up the link's thread.
TEST_F(FanOutStateTest, ConnectTakesNoTurnsWhileItWaits) {
  SetWorkers(3);
  Connect(absl::Seconds(4));
  world_.Accept(AddressOf(1));
  const size_t turns = world_.turns();
  world_.RunFor(milliseconds(3900));
  EXPECT_EQ(world_.turns(), turns + 1) << "the schedule frees the room of the two handshakes";
  EXPECT_FALSE(unconnected_.has_value());
  world_.RunFor(milliseconds(200));
  ASSERT_TRUE(unconnected_.has_value());
  EXPECT_THAT(*unconnected_, ElementsAre(0, 2));
}

TEST_F(FanOutStateTest, ConnectWaitsAgainForAWorkerThatIsLostBeforeTheOthersConnect) {
  SetWorkers(2);
  Connect(absl::Minutes(1));
  world_.Accept(AddressOf(0));
  world_.RunFor(seconds(2));
  world_.Disconnect(AddressOf(0));
  world_.Accept(AddressOf(1));
  EXPECT_FALSE(unconnected_.has_value());
  world_.RunFor(milliseconds(10));
  world_.Accept(AddressOf(0));
  ASSERT_TRUE(unconnected_.has_value());
  EXPECT_THAT(*unconnected_, IsEmpty());
}

TEST_F(FanOutStateTest, AnAddressThatIsListedTwiceIsConnectedOnce) {
  world_.Turn([this] { fan_out_.SetWorkers(std::make_shared<const std::vector<std::string>>(2, AddressOf(0))); });
  Connect(absl::Minutes(1));
  world_.Accept(AddressOf(0));
  EXPECT_TRUE(unconnected_.has_value());
}

TEST_F(FanOutStateTest, CloseEndsConnect) {
  SetWorkers(2);
  Connect(absl::Minutes(1));
  world_.Accept(AddressOf(0));
  bool idle = false;
  world_.Turn([&] { fan_out_.Close(absl::CancelledError("by the test"), [&idle] { idle = true; }); });
  EXPECT_TRUE(idle);
  ASSERT_TRUE(unconnected_.has_value());
  EXPECT_THAT(*unconnected_, ElementsAre(1));
}

TEST_F(FanOutStateTest, AsksThatFailAtOneDeadlineEachHaveTheirFailure) {
  constexpr size_t kAsks = 65'536;
  SetWorkers(kWorkers);
  std::optional<FanOutResult> result;
  world_.Turn([&] { Ask(0, kAsks, absl::Milliseconds(100), [&](FanOutResult ended) { result = std::move(ended); }); });
  world_.RunFor(milliseconds(200));
  ASSERT_TRUE(result.has_value());
  ASSERT_EQ(result->failures.size(), kAsks);
  for (size_t i = 0; i < kAsks; ++i) {
    ASSERT_EQ(result->failures[i].worker, i % kWorkers);
    ASSERT_THAT(result->failures[i].status, testing::HasCode(absl::StatusCode::kDeadlineExceeded));
  }
}

TEST_F(FanOutStateTest, FanOutsThatFailAtOneDeadlineAllEnd) {
  constexpr size_t kFanOuts = 16'384;
  SetWorkers(kWorkers);
  size_t ended = 0;
  world_.Turn([&] {
    for (size_t i = 0; i < kFanOuts; ++i) {
      Ask(i, 1, absl::Milliseconds(100), [&](const FanOutResult& result) {
        ended += absl::IsDeadlineExceeded(result.failures.front().status) ? 1 : 0;
      });
    }
  });
  world_.RunFor(milliseconds(200));
  EXPECT_EQ(ended, kFanOuts);
  bool idle = false;
  world_.Turn([&] { fan_out_.Close(absl::CancelledError("by the test"), [&idle] { idle = true; }); });
  EXPECT_TRUE(idle);
}

// The other half of the queue is reserved for other workers.
TEST_F(FanOutStateTest, AsksThatFindNoRoomAtTheirWorkerFailAndTheOthersWait) {
  constexpr size_t kAsks = 65'536;
  SetWorkers(1);
  std::optional<FanOutResult> result;
  world_.Turn([&] { Ask(0, kAsks, absl::Milliseconds(100), [&](FanOutResult ended) { result = std::move(ended); }); });
  EXPECT_FALSE(result.has_value());
  EXPECT_EQ(link_.schedule().State().waiting_calls, static_cast<int64_t>(kAsks / 2));
  world_.RunFor(milliseconds(200));
  ASSERT_TRUE(result.has_value());
  ASSERT_EQ(result->failures.size(), kAsks);
  EXPECT_THAT(result->failures.front().status, testing::HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(result->failures.back().status, testing::HasCode(absl::StatusCode::kDeadlineExceeded));
}

}  // namespace
}  // namespace sluice
