#include "lib/link/silence_watch.h"

#include <chrono>

#include "tests/unit/link/virtual_link_fixture.h"

namespace sluice {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasCode;
using testing::VirtualLinkTest;
using testing::VirtualWorker;
using Verdict = SilenceWatch::Verdict;

// Looks at a connection whose bytes and frames the test sets.
class Looks {
 public:
  Looks() { watch_.Begin(received); }

  Verdict Next() { return watch_.Look(now_ += SilenceWatch::kLookEvery, received); }
  // Whether the next `count` looks say kAlive.
  bool AliveFor(int count) {
    for (int i = 0; i < count; ++i) {
      if (Next() != Verdict::kAlive) return false;
    }
    return true;
  }
  void BeginAgain() { watch_.Begin(received); }

  SilenceWatch::Received received;

 private:
  SilenceWatch watch_;
  TimePoint now_;
};

constexpr int kLooksOfPingEvery = SilenceWatch::kPingEvery / SilenceWatch::kLookEvery;

TEST(SilenceWatchTest, ASilentWorkerGetsOnePingAndIsThenGivenUp) {
  Looks looks;
  EXPECT_TRUE(looks.AliveFor(SilenceWatch::kLooksBeforePing - 1));
  EXPECT_EQ(looks.Next(), Verdict::kPing);
  EXPECT_TRUE(looks.AliveFor(SilenceWatch::kLooksForAnswer - 1));
  EXPECT_EQ(looks.Next(), Verdict::kFrozen);
}

TEST(SilenceWatchTest, AWorkerThatSendsAtTimesGetsNoPing) {
  Looks looks;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(looks.AliveFor(SilenceWatch::kLooksBeforePing - 1));
    ++looks.received.bytes;
    EXPECT_TRUE(looks.AliveFor(1));
  }
}

TEST(SilenceWatchTest, AWorkerThatHasAnsweredGetsNoSecondPingForMinutes) {
  Looks looks;
  looks.AliveFor(SilenceWatch::kLooksBeforePing - 1);
  EXPECT_EQ(looks.Next(), Verdict::kPing);
  looks.received.bytes += 17;
  EXPECT_TRUE(looks.AliveFor(kLooksOfPingEvery - 1));
  EXPECT_EQ(looks.Next(), Verdict::kPing);
}

TEST(SilenceWatchTest, AfterAFrameOfAStreamTheNextSilenceGetsAPing) {
  Looks looks;
  looks.AliveFor(SilenceWatch::kLooksBeforePing - 1);
  EXPECT_EQ(looks.Next(), Verdict::kPing);
  looks.received = {.bytes = 1000, .stream_frames = 1};
  EXPECT_TRUE(looks.AliveFor(SilenceWatch::kLooksBeforePing));
  EXPECT_EQ(looks.Next(), Verdict::kPing);
}

TEST(SilenceWatchTest, TimeWithoutCallsIsNoSilence) {
  Looks looks;
  EXPECT_TRUE(looks.AliveFor(SilenceWatch::kLooksBeforePing - 1));
  looks.BeginAgain();
  EXPECT_TRUE(looks.AliveFor(SilenceWatch::kLooksBeforePing - 1));
  EXPECT_EQ(looks.Next(), Verdict::kPing);
  looks.BeginAgain();
  EXPECT_TRUE(looks.AliveFor(kLooksOfPingEvery - 1)) << "no more PINGs without a frame of a stream";
}

class SilentWorkerTest : public VirtualLinkTest {
 protected:
  void SetUp() override { StartLink(Ample()); }
  VirtualWorker& Hung() {
    VirtualWorker& worker = Serve("hung:1", nullptr);
    Connect(worker.address());
    return worker;
  }
};

TEST_F(SilentWorkerTest, ACallToAFrozenProcessIsUnavailableWithinHalfAMinute) {
  VirtualWorker& worker = Hung();
  worker.SetPause(VirtualWorker::Pause::kProcess);
  const TimePoint start = executor_.Now();
  EXPECT_EQ(AwaitEnd(Ask(worker.address())).status,
            absl::UnavailableError("connection was lost before the response was complete: hung:1 has sent nothing for "
                                   "12 s, and then no answer to an HTTP/2 PING; its process may be frozen"));
  EXPECT_LE(executor_.Now() - start, seconds(30));
}

TEST_F(SilentWorkerTest, AProcessThatFreezesAfterAnAnswerIsNoticed) {
  bool answers = true;
  VirtualWorker& worker = Serve("freezes:1", [&](auto& call) {
    if (answers) call.Answer("!");
  });
  Connect(worker.address());
  ASSERT_TRUE(AwaitEnd(Ask(worker.address())).status.ok());
  executor_.RunFor(minutes(10));
  answers = false;
  worker.SetPause(VirtualWorker::Pause::kProcess);
  const TimePoint start = executor_.Now();
  EXPECT_THAT(AwaitEnd(Ask(worker.address())).status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_LE(executor_.Now() - start, seconds(30));
}

TEST_F(SilentWorkerTest, AProcessThatThinksForAnHourKeepsItsCall) {
  VirtualWorker& worker = Hung();
  const size_t call = Ask(worker.address());
  executor_.RunFor(minutes(60));
  ASSERT_EQ(calls_[call].ended, 0);
  worker.calls()[0]->Answer("!");
  worker.calls()[0]->connection().Flush();
  EXPECT_TRUE(AwaitEnd(call).status.ok());
  EXPECT_EQ(worker.connections().size(), 1U);
}

TEST_F(SilentWorkerTest, AnIdleConnectionToAFrozenProcessStays) {
  VirtualWorker& worker = Hung();
  worker.SetPause(VirtualWorker::Pause::kProcess);
  executor_.RunFor(minutes(10));
  EXPECT_EQ(worker.open_connections(), 1U);
}

}  // namespace
}  // namespace sluice
