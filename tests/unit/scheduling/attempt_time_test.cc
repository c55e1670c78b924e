#include "lib/scheduling/attempt_time.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/unit/scheduling/schedule_driver.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;

TEST(AttemptTimeTest, TheLinkIsLateUntilTheRequestIsSent) {
  AttemptTime time;
  EXPECT_FALSE(time.sent());
  EXPECT_TRUE(time.LinkIsLate(At(0ms)));
  time.OnSent(At(10ms));
  EXPECT_TRUE(time.sent());
  EXPECT_FALSE(time.LinkIsLate(At(10ms)));
}

TEST(AttemptTimeTest, AResponseThatIsNotReadyIsTheWorkersTime) {
  AttemptTime time;
  time.OnSent(At(10ms));
  EXPECT_EQ(time.OfWorker(At(100ms)), 90ms);
  EXPECT_EQ(time.OfLink(At(100ms)), 0ms);
  EXPECT_FALSE(time.LinkIsLate(At(100ms)));
}

TEST(AttemptTimeTest, TheWorkersTimeStandsStillWhileTheResponseWaitsForAGrant) {
  AttemptTime time;
  time.OnSent(At(0ms));
  time.OnHeld(At(30ms), HeldFor::kGrant);
  EXPECT_EQ(time.OfWorker(At(50ms)), 30ms);
  EXPECT_EQ(time.OfLink(At(50ms)), 20ms);
  time.OnHeld(At(60ms), HeldFor::kNothing);
  EXPECT_EQ(time.OfWorker(At(65ms)), 35ms);
  time.OnHeld(At(70ms), HeldFor::kGrant);
  EXPECT_EQ(time.OfWorker(At(100ms)), 40ms);
  EXPECT_EQ(time.OfLink(At(100ms)), 60ms);
}

TEST(AttemptTimeTest, TheLinkIsLateWhileTheResponseWaitsHoweverLongTheWorkerTook) {
  AttemptTime time;
  time.OnSent(At(0ms));
  time.OnHeld(At(90ms), HeldFor::kGrant);
  EXPECT_TRUE(time.LinkIsLate(At(91ms)));
  time.OnHeld(At(92ms), HeldFor::kNothing);
  EXPECT_FALSE(time.LinkIsLate(At(93ms))) << "2 ms of the link, 91 of the worker";
}

TEST(AttemptTimeTest, TheLinkIsLateIfTheResponseHasWaitedForLongerThanTheWorkerTook) {
  AttemptTime time;
  time.OnSent(At(0ms));
  time.OnHeld(At(10ms), HeldFor::kGrant);
  time.OnHeld(At(90ms), HeldFor::kNothing);
  EXPECT_TRUE(time.LinkIsLate(At(91ms)));
  EXPECT_TRUE(time.LinkIsLate(At(159ms)));
  EXPECT_FALSE(time.LinkIsLate(At(160ms))) << "granted bytes have not come for as long as it had waited";
}

TEST(AttemptTimeTest, TheStatusSaysWhatTheResponseWaitedFor) {
  const auto why = [](const AttemptTime& time) {
    const absl::Status status = time.WhyLinkIsLate(At(100ms), "room");
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    return std::string(status.message());
  };
  AttemptTime time;
  EXPECT_EQ(why(time), "the request was not sent before the deadline");
  time.OnSent(At(0ms));
  time.OnHeld(At(30ms), HeldFor::kRoom);
  EXPECT_EQ(why(time), "the response was ready and waited for room for 70ms before the deadline");
  time.OnHeld(At(80ms), HeldFor::kGrant);
  EXPECT_EQ(time.OfWorker(At(100ms)), 30ms);
  EXPECT_EQ(why(time),
            "the response was ready and waited for the link's grant for 20ms and waited for room for 50ms before the "
            "deadline");
}

}  // namespace
}  // namespace sluice
