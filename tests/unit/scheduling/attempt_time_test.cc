#include "lib/scheduling/attempt_time.h"

#include <string>

#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;

constexpr TimePoint At(int ms) {
  return TimePoint() + milliseconds(ms);
}

TEST(AttemptTimeTest, TheLinkIsLateUntilTheRequestIsSent) {
  AttemptTime time;
  EXPECT_FALSE(time.sent());
  EXPECT_TRUE(time.LinkIsLate(At(0)));
  time.OnSent(At(10));
  EXPECT_TRUE(time.sent());
  EXPECT_FALSE(time.LinkIsLate(At(10)));
}

TEST(AttemptTimeTest, AResponseThatIsNotReadyIsTheWorkersTime) {
  AttemptTime time;
  time.OnSent(At(10));
  EXPECT_EQ(time.OfWorker(At(100)), milliseconds(90));
  EXPECT_EQ(time.OfLink(At(100)), milliseconds(0));
  EXPECT_FALSE(time.LinkIsLate(At(100)));
}

TEST(AttemptTimeTest, TheWorkersTimeStandsStillWhileTheResponseWaitsForAGrant) {
  AttemptTime time;
  time.OnSent(At(0));
  time.OnHeld(At(30), HeldFor::kGrant);
  EXPECT_EQ(time.OfWorker(At(50)), milliseconds(30));
  EXPECT_EQ(time.OfLink(At(50)), milliseconds(20));
  time.OnHeld(At(60), HeldFor::kNothing);
  EXPECT_EQ(time.OfWorker(At(65)), milliseconds(35));
  time.OnHeld(At(70), HeldFor::kGrant);
  EXPECT_EQ(time.OfWorker(At(100)), milliseconds(40));
  EXPECT_EQ(time.OfLink(At(100)), milliseconds(60));
}

TEST(AttemptTimeTest, TheLinkIsLateWhileTheResponseWaitsHoweverLongTheWorkerTook) {
  AttemptTime time;
  time.OnSent(At(0));
  time.OnHeld(At(90), HeldFor::kGrant);
  EXPECT_TRUE(time.LinkIsLate(At(91)));
  time.OnHeld(At(92), HeldFor::kNothing);
  EXPECT_FALSE(time.LinkIsLate(At(93))) << "2 ms of the link, 91 of the worker";
}

TEST(AttemptTimeTest, TheLinkIsLateIfTheResponseHasWaitedForLongerThanTheWorkerTook) {
  AttemptTime time;
  time.OnSent(At(0));
  time.OnHeld(At(10), HeldFor::kGrant);
  time.OnHeld(At(90), HeldFor::kNothing);
  EXPECT_TRUE(time.LinkIsLate(At(91)));
  EXPECT_TRUE(time.LinkIsLate(At(159)));
  EXPECT_FALSE(time.LinkIsLate(At(160))) << "granted bytes have not come for as long as it had waited";
}

TEST(AttemptTimeTest, TheStatusSaysWhatTheResponseWaitedFor) {
  const auto why = [](const AttemptTime& time) {
    const absl::Status status = time.WhyLinkIsLate(At(100), "room");
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    return std::string(status.message());
  };
  AttemptTime time;
  EXPECT_EQ(why(time), "the request was not sent before the deadline");
  time.OnSent(At(0));
  time.OnHeld(At(30), HeldFor::kRoom);
  EXPECT_EQ(why(time), "the response was ready and waited for room for 70ms before the deadline");
  time.OnHeld(At(80), HeldFor::kGrant);
  EXPECT_EQ(time.OfWorker(At(100)), milliseconds(30));
  EXPECT_EQ(why(time),
            "the response was ready and waited for the link's grant for 20ms and waited for room for 50ms before the "
            "deadline");
}

}  // namespace
}  // namespace sluice
