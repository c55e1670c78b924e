#include "lib/fan_out/attempt_timers.h"

#include <chrono>

#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;

constexpr TimePoint kStart = TimePoint() + std::chrono::hours(1);

class AttemptTimersTest : public ::testing::Test {
 protected:
  // Sends an attempt, and starts its timers.
  void Send(AttemptTimers& timers, TimePoint now) {
    FanOutActions actions;
    const size_t attempt = attempts_.Send({}, actions);
    attempts_.OnSent(now, attempt);
    if (timers.hedges()) timers.AddHedge(now, attempt);
    timers.StartTimeout(now, attempt, attempts_[attempt].time);
  }

  Attempts attempts_{2};
};

TEST_F(AttemptTimersTest, WithoutLimitsThereIsNoTimer) {
  AttemptTimers timers(absl::InfiniteDuration(), std::nullopt);
  Send(timers, kStart);
  EXPECT_EQ(timers.Next(), TimePoint::max());
  EXPECT_EQ(timers.TakeTimeout(TimePoint::max()), std::nullopt);
  EXPECT_EQ(timers.TakeHedge(TimePoint::max()), std::nullopt);
}

TEST_F(AttemptTimersTest, EachIsTakenOnceWhenItsTimeHasCome) {
  AttemptTimers timers(absl::Milliseconds(30), absl::Milliseconds(10));
  Send(timers, kStart);
  Send(timers, kStart + milliseconds(5));
  EXPECT_EQ(timers.Next(), kStart + milliseconds(10));
  EXPECT_EQ(timers.TakeHedge(kStart + milliseconds(9)), std::nullopt);
  EXPECT_EQ(timers.TakeHedge(kStart + milliseconds(15)), 0u);
  EXPECT_EQ(timers.TakeHedge(kStart + milliseconds(15)), 1u);
  EXPECT_EQ(timers.TakeHedge(kStart + milliseconds(15)), std::nullopt);
  EXPECT_EQ(timers.Next(), kStart + milliseconds(30));
  EXPECT_EQ(timers.TakeTimeout(kStart + milliseconds(30)), 0u);
  EXPECT_EQ(timers.TakeTimeout(kStart + milliseconds(30)), std::nullopt);
}

TEST_F(AttemptTimersTest, ATimeoutDoesNotCountTheTimeInWhichTheResponseIsHeld) {
  AttemptTimers timers(absl::Milliseconds(30), std::nullopt);
  Send(timers, kStart);
  const TimePoint held = kStart + milliseconds(20);
  timers.StopTimeout(held, 0, attempts_[0].time);
  attempts_.OnHeld(held, 0, HeldFor::kGrant);
  EXPECT_EQ(timers.Next(), TimePoint::max());
  const TimePoint granted = kStart + milliseconds(500);
  attempts_.OnHeld(granted, 0, HeldFor::kNothing);
  timers.StartTimeout(granted, 0, attempts_[0].time);
  EXPECT_EQ(timers.Next(), granted + milliseconds(10));
}

TEST_F(AttemptTimersTest, AttemptsThatHaveEndedAreSkipped) {
  AttemptTimers timers(absl::Milliseconds(30), absl::Milliseconds(10));
  Send(timers, kStart);
  FanOutActions actions;
  attempts_.OnEnded(kStart, 0, absl::UnavailableError("gone"));
  attempts_.Conclude(0, AttemptOutcome::kFailed, actions);
  timers.SkipEnded(attempts_);
  EXPECT_EQ(timers.Next(), TimePoint::max());
}

}  // namespace
}  // namespace sluice
