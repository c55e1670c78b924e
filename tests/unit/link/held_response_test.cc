#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/http2/raw_frames.h"
#include "tests/unit/link/kestrel_write_timer.h"
#include "tests/unit/link/virtual_link_fixture.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::IsEmpty;
using testing::KestrelWriteTimer;
using ::testing::SizeIs;
using testing::VirtualWorker;

// Responses that are ready and get no grant.
class HeldResponseTest : public testing::VirtualLinkTest {
 protected:
  static constexpr size_t kBytes = 100'000;

  void SetUp() override { StartLink(); }

  // Records the SETTINGS and the PINGs of the client. Call it before the client connects.
  VirtualWorker& Record(VirtualWorker::Options options = {}) {
    options.on_received = [this](auto&, absl::string_view bytes) {
      for (const raw::ReadFrame& frame : raw::ReadFrames(bytes)) {
        if (frame.type == raw::kPing) ++pings_;
        if (frame.type == raw::kSettings && frame.flags != raw::kAck) settings_.push_back({executor_.Now(), frame});
      }
    };
    VirtualWorker& worker = Serve("worker:1", nullptr, std::move(options));
    Connect(worker.address());
    executor_.RunFor(milliseconds(10));
    EXPECT_THAT(settings_, SizeIs(1)) << "of the preface";
    settings_.clear();
    return worker;
  }
  // Asks, and makes the responses ready while nothing is granted. Returns the first.
  size_t Hold(VirtualWorker& worker, size_t calls = 1) {
    const size_t before = worker.calls().size();
    const size_t first = Ask(worker.address(), calls, {.response_bytes = 0});
    EXPECT_TRUE(AwaitCalls(worker, before + calls));
    SetLease(0);
    for (size_t i = 0; i < calls; ++i) worker.calls()[before + i]->Answer(std::string(kBytes, 'x'));
    worker.calls().back()->connection().Flush();
    held_since_ = executor_.Now();
    return first;
  }
  void ExpectArrival(size_t first, size_t calls = 1) {
    SetLease(kAmpleBytes);
    for (size_t i = first; i < first + calls; ++i) {
      const CallRecord& record = AwaitEnd(i);
      EXPECT_TRUE(record.status.ok()) << record.status;
      ASSERT_THAT(record.messages, SizeIs(1));
      EXPECT_EQ(record.messages[0].size(), kBytes);
    }
  }
  // The times of the SETTINGS since the responses were ready, in seconds.
  std::vector<double> SettingsSeconds() const {
    std::vector<double> times;
    for (const auto& [at, frame] : settings_) {
      times.push_back(std::chrono::duration<double>(at - held_since_).count());
    }
    return times;
  }

  struct Settings {
    TimePoint at;
    raw::ReadFrame frame;
  };
  std::vector<Settings> settings_;
  int pings_ = 0;
  TimePoint held_since_;
};

TEST_F(HeldResponseTest, AnEmptySettingsComesEveryThreeSeconds) {
  VirtualWorker& worker = Record();
  const size_t call = Hold(worker);
  executor_.RunFor(milliseconds(60'100));
  const std::vector<double> times = SettingsSeconds();
  ASSERT_THAT(times, SizeIs(20));
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_NEAR(times[i], 3.0 * static_cast<double>(i + 1), 0.01) << i;
    EXPECT_EQ(settings_[i].frame.payload, "");
  }
  EXPECT_EQ(pings_, 0) << "gRPC's servers count them";
  ExpectArrival(call);
  settings_.clear();
  executor_.RunFor(seconds(60));
  EXPECT_THAT(settings_, IsEmpty()) << "nothing is held any more";
}

TEST_F(HeldResponseTest, OneSettingsServesAllResponsesOfAConnection) {
  VirtualWorker& worker = Record();
  const size_t first = Hold(worker, 50);
  executor_.RunFor(milliseconds(60'100));
  EXPECT_THAT(SettingsSeconds(), SizeIs(20));
  ExpectArrival(first, 50);
}

TEST_F(HeldResponseTest, NoneComesWhileTheWorkerSends) {
  VirtualWorker& worker = Record();
  const size_t call = Hold(worker);
  for (int i = 0; i < 30; ++i) {
    executor_.RunFor(seconds(2));
    worker.connections()[0]->Flush(raw::Ping());
  }
  EXPECT_THAT(settings_, IsEmpty());
  held_since_ = executor_.Now();
  executor_.RunFor(milliseconds(3'100));
  ASSERT_THAT(SettingsSeconds(), SizeIs(1));
  EXPECT_NEAR(SettingsSeconds()[0], 3, 0.01);
  ExpectArrival(call);
}

TEST_F(HeldResponseTest, NoneComesWithoutAHeldResponse) {
  VirtualWorker& worker = Record();
  executor_.RunFor(seconds(60));
  EXPECT_THAT(settings_, IsEmpty()) << "the connection is idle";
  Ask(worker.address());
  executor_.RunFor(seconds(60));
  EXPECT_THAT(settings_, IsEmpty()) << "the worker thinks";
}

TEST_F(HeldResponseTest, NoneComesBeforeTheLastIsAcknowledged) {
  VirtualWorker& worker = Record();
  const size_t call = Hold(worker);
  executor_.RunFor(milliseconds(1));
  worker.SetPause(VirtualWorker::Pause::kProcess);
  executor_.RunFor(seconds(15));
  EXPECT_THAT(settings_, SizeIs(1));
  worker.SetPause(VirtualWorker::Pause::kNone);
  executor_.RunFor(milliseconds(6'500));
  EXPECT_THAT(settings_, SizeIs(3));
  ExpectArrival(call);
}

TEST_F(HeldResponseTest, AFrozenProcessIsStillNoticed) {
  VirtualWorker& worker = Record();
  const size_t call = Hold(worker);
  executor_.RunFor(milliseconds(1));
  worker.SetPause(VirtualWorker::Pause::kProcess);
  EXPECT_TRUE(executor_.RunUntil([&] { return calls_[call].ended > 0; }, seconds(25)));
  EXPECT_EQ(calls_[call].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(settings_, SizeIs(1));
}

// A stream of messages whose owner has no room for the next one.
TEST_F(HeldResponseTest, AResponseThatWaitsForItsOwnerIsHeldToo) {
  VirtualWorker& worker = Record();
  constexpr int64_t kMemory = 1 << 20;
  loop_->callback_memory().SetBound(kMemory);
  auto memory = std::make_shared<CallbackMemory::Account>(loop_->callback_memory());
  const size_t call = Ask(worker.address(), 1, {.server_streaming = true, .memory = memory});
  ASSERT_TRUE(AwaitCalls(worker, 1));
  memory->Hold(kMemory);
  worker.calls()[0]->Answer(std::string(kBytes, 'x'));
  worker.connections()[0]->Flush();
  held_since_ = executor_.Now();
  executor_.RunFor(milliseconds(9'100));
  EXPECT_THAT(SettingsSeconds(), SizeIs(3));
  executor_.Turn([&] { memory->Release(kMemory); });
  EXPECT_TRUE(AwaitEnd(call).status.ok()) << calls_[call].status;
}

// Their worker does not know that they are dropped, and waits for their windows.
TEST_F(HeldResponseTest, PagesThatWaitForTheirResetAreHeldToo) {
  loop_->workers().set_max_connections(1);
  VirtualWorker& worker = Record();
  Ask(worker.address(), 300, {.response_bytes = 0});
  ASSERT_TRUE(AwaitCalls(worker, 300));
  for (const auto& call : worker.calls()) {
    call->SendHeaders({{":status", "503"}, {"content-type", "text/html"}}, /*end_stream=*/false);
    call->SendDataAndEnd("<html>out of order</html>");
  }
  worker.connections()[0]->Flush();
  held_since_ = executor_.Now();
  executor_.RunFor(milliseconds(30'100));
  EXPECT_LT(worker.resets(), 200U) << "the allowance";
  EXPECT_THAT(SettingsSeconds(), SizeIs(10));
  executor_.RunFor(seconds(60));
  EXPECT_EQ(worker.resets(), 300U);
  settings_.clear();
  executor_.RunFor(seconds(60));
  EXPECT_THAT(settings_, IsEmpty());
}

// --- Kestrel, which aborts a connection whose write is blocked.

TEST(KestrelWriteTimerTest, RunsOutFiveSecondsAfterAFlush) {
  for (const size_t blocked_ticks : {0, 20}) {
    TimePoint now;
    KestrelWriteTimer timer(now);
    timer.OnFlush(20);
    size_t ticks = 0;
    while (ticks < 100 && !timer.Tick(now += KestrelWriteTimer::kTick, ++ticks > blocked_ticks)) continue;
    EXPECT_EQ(ticks, std::max<size_t>(blocked_ticks + 1, 7));
  }
}

TEST(KestrelWriteTimerTest, AllowsForTheBytesOfAFlush) {
  TimePoint now;
  KestrelWriteTimer timer(now);
  timer.OnFlush(24'000);
  int ticks = 0;
  while (ticks < 1000 && !timer.Tick(now += KestrelWriteTimer::kTick, true)) ++ticks;
  EXPECT_EQ(ticks, 101);
}

class KestrelTest : public HeldResponseTest {
 protected:
  VirtualWorker& Serve() {
    VirtualWorker::Options options;
    options.on_sent = [this](VirtualWorker::Connection& connection, absl::string_view bytes) {
      timers_.try_emplace(&connection, executor_.Now()).first->second.OnFlush(bytes.size());
    };
    VirtualWorker& worker = Record(std::move(options));
    Tick(worker);
    return worker;
  }
  void Tick(VirtualWorker& worker) {
    for (auto& [connection, timer] : timers_) {
      const auto is_blocked = [connection = connection](const auto& call) {
        return &call->connection() == connection && connection->session().unsent_bytes(call->stream()) > 0;
      };
      const bool blocked = std::any_of(worker.calls().begin(), worker.calls().end(), is_blocked);
      if (timer.Tick(executor_.Now(), blocked) && connection->open()) {
        ++aborts_;
        connection->BreakHere();
      }
    }
    executor_.After(KestrelWriteTimer::kTick, [this, &worker] { Tick(worker); });
  }

  std::map<VirtualWorker::Connection*, KestrelWriteTimer> timers_;
  int aborts_ = 0;
};

TEST_F(KestrelTest, ResponsesLiveForAMinuteWithoutAGrant) {
  VirtualWorker& worker = Serve();
  const size_t first = Hold(worker, 3);
  executor_.RunFor(seconds(60));
  EXPECT_EQ(aborts_, 0);
  EXPECT_EQ(worker.open_connections(), 1U);
  EXPECT_GE(worker.connections()[0]->session().unsent_bytes(worker.calls()[0]->stream()), kBytes - 2000);
  ExpectArrival(first, 3);
}

// The model aborts, as the test above needs.
TEST_F(KestrelTest, AConnectionThatAcknowledgesNothingIsAborted) {
  VirtualWorker& worker = Serve();
  Hold(worker);
  executor_.RunFor(milliseconds(1));
  worker.SetPause(VirtualWorker::Pause::kProcess);
  executor_.RunFor(seconds(8));
  EXPECT_EQ(aborts_, 1);
}

}  // namespace
}  // namespace sluice
