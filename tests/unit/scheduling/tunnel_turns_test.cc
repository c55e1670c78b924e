#include "lib/scheduling/tunnel_turns.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/schedule_driver.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
class TunnelTurnsTest : public ::testing::Test {
 protected:
  using Phase = TunnelTurns::Phase;
  using Step = TunnelTurns::Step;
  static constexpr int64_t kPart = 10'000;
  static constexpr int64_t kWindow = 2920;
  static constexpr int64_t kRequest = 1000;
  static constexpr int64_t kControl = 39;
  static constexpr std::chrono::nanoseconds kSilence = 5ms;

  // A turn that began with a request, `think` before a window of the response came.
  void BeginResponse(TimePoint now, std::chrono::nanoseconds think = 1ms) {
    EXPECT_EQ(turns_.OnRequest(now, kRequest), Step::kAsk);
    EXPECT_EQ(turns_.OnGranted(now), Step::kNothing);
    EXPECT_EQ(turns_.OnResponse(now + think, {.bytes = kWindow}, kPart), Step::kNothing);
  }
  // The turn ends by silence, as late as it may.
  TimePoint EndBySilence() {
    const TimePoint due = turns_.Due(kSilence);
    EXPECT_EQ(turns_.OnTimer(due - kTick, kSilence), Step::kNothing);
    EXPECT_EQ(turns_.OnTimer(due, kSilence), Step::kEnd);
    EXPECT_EQ(turns_.phase(), Phase::kQuiet);
    return due;
  }

  TunnelTurns turns_;
};

TEST_F(TunnelTurnsTest, ARequestWaitsForItsTurn) {
  EXPECT_EQ(turns_.OnRequest(At(0ms), kRequest), Step::kAsk);
  EXPECT_FALSE(turns_.passes_requests());
  EXPECT_FALSE(turns_.reads());
  EXPECT_EQ(turns_.OnRequest(At(1ms), kRequest), Step::kNothing) << "it asks once";
  EXPECT_EQ(turns_.OnGranted(At(2ms)), Step::kNothing);
  EXPECT_TRUE(turns_.passes_requests());
  EXPECT_TRUE(turns_.reads());
}

TEST_F(TunnelTurnsTest, AResponseEndsWithSilence) {
  BeginResponse(At(0ms));
  turns_.OnResponse(At(3ms), {.bytes = kWindow}, kPart);
  EXPECT_EQ(turns_.response_bytes(), 2 * kWindow);
  EXPECT_EQ(EndBySilence(), At(3ms) + kSilence);
  EXPECT_EQ(turns_.Due(kSilence), TimePoint::max());
  EXPECT_EQ(turns_.response_bytes(), 0);
  EXPECT_EQ(turns_.surprises(), 0);
}

TEST_F(TunnelTurnsTest, AWorkerMayThinkForLongerThanAResponseMayPause) {
  turns_.OnRequest(At(0ms), kRequest);
  turns_.OnGranted(At(10ms));
  EXPECT_EQ(EndBySilence(), At(10ms) + TunnelTurns::kMostThinking);
}

TEST_F(TunnelTurnsTest, AWorkerThatAlwaysRespondsSoonIsGivenUpSooner) {
  for (int i = 0; i < 100; ++i) {
    BeginResponse(At(i * 1000ms), 2ms);
    EndBySilence();
  }
  turns_.OnRequest(At(100'000ms), kRequest);
  turns_.OnGranted(At(100'000ms));
  EXPECT_EQ(EndBySilence(), At(100'000ms) + 3 * 2ms + kSilence);
  // It took longer, and the tunnel learns it.
  EXPECT_EQ(turns_.OnResponse(At(100'050ms), {.bytes = kWindow}, kPart), Step::kAsk);
  turns_.OnGranted(At(100'050ms));
  EndBySilence();
  turns_.OnRequest(At(101'000ms), kRequest);
  turns_.OnGranted(At(101'000ms));
  EXPECT_EQ(EndBySilence(), At(101'000ms) + 3 * 50ms + kSilence);
}

TEST_F(TunnelTurnsTest, AfterAPartTheTunnelAsksAgainAndHoldsTheRest) {
  BeginResponse(At(0ms));
  turns_.OnResponse(At(1ms), {.bytes = kWindow}, kPart);
  turns_.OnResponse(At(1ms), {.bytes = kWindow}, kPart);
  EXPECT_EQ(turns_.OnResponse(At(1ms), {.bytes = kWindow}, kPart), Step::kAsk);
  EXPECT_FALSE(turns_.reads());
  EXPECT_TRUE(turns_.passes_requests()) << "the window is full or on its way, and stays so";
  EXPECT_EQ(turns_.response_bytes(), 4 * kWindow);
  EXPECT_EQ(turns_.OnResponse(At(2ms), {.bytes = kWindow}, kPart), Step::kNothing)
      << "it was read before reading stopped";
  EXPECT_EQ(turns_.OnGranted(At(3ms)), Step::kNothing);
  EXPECT_EQ(turns_.OnResponse(At(3ms), {.bytes = kWindow}, kPart), Step::kNothing);
  EXPECT_EQ(turns_.response_bytes(), 6 * kWindow);
}

TEST_F(TunnelTurnsTest, TheNextRequestNeedsNoTurnOfItsOwnWhileOneLasts) {
  BeginResponse(At(0ms));
  EXPECT_EQ(turns_.OnRequest(At(2ms), kRequest), Step::kNothing);
  EXPECT_TRUE(turns_.passes_requests());
  EXPECT_EQ(turns_.response_bytes(), 0) << "another response is expected";
  EXPECT_GT(turns_.Due(kSilence), At(2ms) + kSilence) << "its worker may think";
}

TEST_F(TunnelTurnsTest, BytesThatNobodyExpectsTakeATurn) {
  EXPECT_EQ(turns_.OnResponse(At(0ms), {.bytes = kWindow}, kPart), Step::kAsk);
  EXPECT_EQ(turns_.surprises(), 1);
  EXPECT_FALSE(turns_.reads());
  turns_.OnGranted(At(1ms));
  EXPECT_EQ(EndBySilence(), At(1ms) + kSilence);
}

TEST_F(TunnelTurnsTest, AfterAResponseThatPausedForLongerTheNextMayToo) {
  BeginResponse(At(0ms));
  TimePoint now = EndBySilence() + 5ms;
  const auto pause = now - At(1ms);
  EXPECT_EQ(turns_.OnResponse(now, {.bytes = kWindow}, kPart), Step::kAsk);
  turns_.OnGranted(now);
  EXPECT_EQ(turns_.Due(kSilence), now + 2 * pause);
  for (int i = 0; i < 3; ++i) {
    EndBySilence();
    BeginResponse(now += 1000ms);
  }
  EXPECT_EQ(turns_.Due(kSilence), now + 1ms + kSilence) << "it forgets";
}

TEST_F(TunnelTurnsTest, AResponseThatSeemsToHaveEndedWaitsForLess) {
  BeginResponse(At(0ms));
  turns_.OnResponse(At(3ms), {.bytes = 1000, .ends = true}, kPart);
  EXPECT_EQ(EndBySilence(), At(3ms) + kSilence / 8);
  // It had not ended.
  EXPECT_EQ(turns_.OnResponse(At(5ms), {.bytes = kWindow}, kPart), Step::kAsk);
  turns_.OnGranted(At(5ms));
  turns_.OnResponse(At(6ms), {.bytes = 1000, .ends = true}, kPart);
  EXPECT_EQ(turns_.Due(kSilence), At(6ms) + 2 * 2ms);
}

TEST_F(TunnelTurnsTest, ALongPauseIsNotWaitedFor) {
  BeginResponse(At(0ms));
  const TimePoint now = EndBySilence() + TunnelTurns::kMostPause;
  EXPECT_EQ(turns_.OnResponse(now, {.bytes = kWindow}, kPart), Step::kAsk);
  turns_.OnGranted(now);
  EXPECT_EQ(turns_.Due(kSilence), now + kSilence);
}

TEST_F(TunnelTurnsTest, SmallPiecesOfAQuietTunnelTakeNoTurn) {
  EXPECT_EQ(turns_.OnResponse(At(0ms), {.bytes = TunnelTurns::kSmallPieceBytes}, kPart), Step::kNothing);
  EXPECT_EQ(turns_.OnRequest(At(1ms), kControl, /*wants_response=*/false), Step::kNothing);
  EXPECT_TRUE(turns_.passes_requests());
  EXPECT_EQ(turns_.phase(), Phase::kQuiet);
}

TEST_F(TunnelTurnsTest, BytesThatAreNoResponseDoNotEndTheWaitForIt) {
  turns_.OnRequest(At(0ms), kRequest);
  turns_.OnGranted(At(0ms));
  turns_.OnResponse(At(1ms), {.bytes = 40, .is_response = false}, kPart);
  EXPECT_EQ(turns_.Due(kSilence), At(0ms) + TunnelTurns::kMostThinking);
}

TEST_F(TunnelTurnsTest, BytesThatGetAResponseNevertheless) {
  turns_.OnRequest(At(0ms), kControl, /*wants_response=*/false);
  EXPECT_EQ(turns_.OnResponse(At(1ms), {.bytes = kWindow}, kPart), Step::kAsk);
  turns_.OnGranted(At(1ms));
  EndBySilence();
  EXPECT_EQ(turns_.OnRequest(At(100ms), kControl, /*wants_response=*/false), Step::kAsk) << "they count from now on";
}

TEST_F(TunnelTurnsTest, ASmallPieceThatGetsNoResponseTakesOneTurnByItsSize) {
  constexpr int64_t kAcknowledgement = 69;
  constexpr int64_t kCall = 56;
  turns_.OnRequest(At(0ms), kAcknowledgement);
  turns_.OnGranted(At(0ms));
  TimePoint now = EndBySilence();
  // The next call is not the rest of an upload.
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(turns_.OnRequest(now, kCall), Step::kAsk);
    turns_.OnGranted(now);
    turns_.OnResponse(now + 1ms, {.bytes = kWindow, .ends = true}, kPart);
    EXPECT_EQ(turns_.OnRequest(now + 1ms, kAcknowledgement), Step::kNothing);
    now = EndBySilence();
    EXPECT_LT(now, At(0ms) + TunnelTurns::kMostThinking + 20ms) << "no turn waits for a response";
    EXPECT_EQ(turns_.OnRequest(now, kAcknowledgement), Step::kNothing);
    EXPECT_EQ(turns_.phase(), Phase::kQuiet);
  }
}

TEST_F(TunnelTurnsTest, ASizeThatGotAResponseLateWantsOneFromThenOn) {
  constexpr int64_t kCall = 56;
  turns_.OnRequest(At(0ms), kCall);
  turns_.OnGranted(At(0ms));
  TimePoint now = EndBySilence();
  EXPECT_EQ(turns_.OnResponse(now, {.bytes = kWindow}, kPart), Step::kAsk);
  turns_.OnGranted(now);
  now = EndBySilence();
  EXPECT_EQ(turns_.OnRequest(now, kCall), Step::kAsk);
  // Also if it had passed without a turn.
  constexpr int64_t kOther = 57;
  turns_.OnGranted(now);
  turns_.OnResponse(now, {.bytes = kWindow}, kPart);
  now = EndBySilence();
  turns_.OnRequest(now, kOther);
  turns_.OnGranted(now);
  now = EndBySilence();
  EXPECT_EQ(turns_.OnRequest(now + 1000ms, kOther), Step::kNothing);
  EXPECT_EQ(turns_.OnResponse(now + 1001ms, {.bytes = kWindow}, kPart), Step::kAsk);
  turns_.OnGranted(now + 1001ms);
  now = EndBySilence();
  EXPECT_EQ(turns_.OnRequest(now, kOther), Step::kAsk);
}

TEST_F(TunnelTurnsTest, AResponseThatMayBeToOtherBytesTeachesNothing) {
  constexpr int64_t kAcknowledgement = 69;
  constexpr int64_t kCall = 56;
  BeginResponse(At(0ms));
  // Within a response, together with a call in its turn, and while both wait for one.
  turns_.OnRequest(At(1ms), kAcknowledgement);
  turns_.OnResponse(At(2ms), {.bytes = kWindow, .ends = true}, kPart);
  turns_.OnRequest(At(2ms), kAcknowledgement);
  turns_.OnRequest(At(3ms), kCall);
  turns_.OnResponse(At(4ms), {.bytes = kWindow, .ends = true}, kPart);
  TimePoint now = EndBySilence();
  EXPECT_EQ(turns_.OnRequest(now, kAcknowledgement), Step::kAsk);
  turns_.OnRequest(now, kCall);
  turns_.OnGranted(now);
  turns_.OnResponse(now, {.bytes = kWindow, .ends = true}, kPart);
  EXPECT_EQ(turns_.OnRequest(now, kAcknowledgement), Step::kNothing);
  now = EndBySilence();
  EXPECT_EQ(turns_.OnRequest(now, kAcknowledgement), Step::kNothing) << "the last one had no response";
  EXPECT_EQ(turns_.phase(), Phase::kQuiet);
}

TEST_F(TunnelTurnsTest, AfterTheFirstResponseAWorkerMayThinkForLongerButNotForever) {
  BeginResponse(At(0ms), 1ms);
  const TimePoint now = EndBySilence();
  turns_.OnRequest(now, kRequest);
  turns_.OnGranted(now);
  EXPECT_EQ(EndBySilence(), now + 3 * 20ms + kSilence);
}

TEST_F(TunnelTurnsTest, ASmallPieceThatComesBeforeAResponseDoesNotEndIt) {
  constexpr int64_t kPing = 52;
  const auto begin = [this](TimePoint now) {
    EXPECT_EQ(turns_.OnRequest(now, kRequest), Step::kAsk);
    turns_.OnGranted(now);
    turns_.OnResponse(now, {.bytes = kPing, .ends = true}, kPart);
  };
  begin(At(0ms));
  TimePoint now = EndBySilence();
  EXPECT_EQ(now, At(0ms) + kSilence / 8);
  EXPECT_EQ(turns_.OnResponse(now, {.bytes = kWindow}, kPart), Step::kAsk);
  turns_.OnGranted(now);
  now = EndBySilence();
  begin(now);
  EXPECT_GT(turns_.Due(kSilence), now + kSilence) << "the response is still to come";
  turns_.OnResponse(now + 1ms, {.bytes = kWindow, .ends = true}, kPart);
  EXPECT_EQ(turns_.surprises(), 1);
  // Once it is all that comes, it is a response again.
  now = EndBySilence();
  begin(now);
  now = EndBySilence();
  begin(now);
  EXPECT_EQ(turns_.Due(kSilence), now + kSilence / 8);
}

TEST_F(TunnelTurnsTest, AnUploadTakesOneTurn) {
  turns_.OnRequest(At(0ms), kRequest);
  turns_.OnGranted(At(0ms));
  TimePoint now = At(0ms);
  for (; now < At(0ms) + TunnelTurns::kMostThinking; now += 10ms)
    EXPECT_EQ(turns_.OnRequest(now, kRequest), Step::kNothing);
  EndBySilence();
  EXPECT_EQ(turns_.OnRequest(now, kRequest), Step::kNothing);
  EXPECT_TRUE(turns_.passes_requests());
  // Its response comes, and the next request waits again.
  EXPECT_EQ(turns_.OnResponse(now + 1ms, {.bytes = kWindow}, kPart), Step::kAsk);
  turns_.OnGranted(now + 1ms);
  EndBySilence();
  EXPECT_EQ(turns_.OnRequest(now + 1000ms, kRequest), Step::kAsk);
}

TEST_F(TunnelTurnsTest, AClientThatDoesNotReadGivesItsTurnUp) {
  BeginResponse(At(0ms));
  EXPECT_EQ(turns_.OnClientStuck(true), Step::kAbandon);
  EXPECT_FALSE(turns_.reads());
  EXPECT_TRUE(turns_.passes_requests()) << "otherwise a client that only writes would never read";
  EXPECT_EQ(turns_.OnClientStuck(false), Step::kAsk);
  turns_.OnGranted(At(5ms));
  EXPECT_TRUE(turns_.reads());
}

TEST_F(TunnelTurnsTest, ATurnIsNotUsedWhileTheClientDoesNotRead) {
  BeginResponse(At(0ms));
  for (int i = 0; i < 3; ++i) turns_.OnResponse(At(1ms), {.bytes = kWindow}, kPart);
  EXPECT_EQ(turns_.phase(), Phase::kWaiting);
  EXPECT_EQ(turns_.OnClientStuck(true), Step::kNothing);
  EXPECT_EQ(turns_.OnGranted(At(2ms)), Step::kEnd);
  EXPECT_EQ(turns_.OnClientStuck(false), Step::kAsk);
}

TEST_F(TunnelTurnsTest, AQuietTunnelWhoseClientDoesNotReadAsksWhenItReads) {
  EXPECT_EQ(turns_.OnClientStuck(true), Step::kNothing);
  EXPECT_FALSE(turns_.reads());
  EXPECT_EQ(turns_.OnClientStuck(false), Step::kAsk);
}

}  // namespace
}  // namespace sluice
