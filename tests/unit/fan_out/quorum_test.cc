#include "lib/fan_out/quorum.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(QuorumTest, WithoutANumberEveryAskMustBeSettled) {
  Quorum quorum(2, /*success_quorum=*/std::nullopt, /*fail_limit=*/1);
  quorum.OnResponse();
  EXPECT_FALSE(quorum.Reached());
  quorum.OnFailure();
  EXPECT_TRUE(quorum.Reached());
  EXPECT_FALSE(quorum.Unreachable());
}

TEST(QuorumTest, IsReachedWithItsNumberOfResponses) {
  Quorum quorum(3, 2, 1);
  quorum.OnResponse();
  EXPECT_FALSE(quorum.Reached());
  quorum.OnResponse();
  EXPECT_TRUE(quorum.Reached());
}

TEST(QuorumTest, IsUnreachableAboveTheFailLimitOrWithTooFewAsksLeft) {
  Quorum none_may_fail(3, 1, /*fail_limit=*/0);
  none_may_fail.OnFailure();
  EXPECT_TRUE(none_may_fail.Unreachable());
  Quorum two_must_respond(3, 2, /*fail_limit=*/3);
  two_must_respond.OnFailure();
  EXPECT_FALSE(two_must_respond.Unreachable());
  two_must_respond.OnFailure();
  EXPECT_TRUE(two_must_respond.Unreachable());
}

TEST(QuorumTest, AsksWaitInOrderWhileItIsFull) {
  Quorum quorum(4, 2, 4);
  quorum.OnVerdictBegins();
  EXPECT_FALSE(quorum.Full());
  quorum.OnVerdictBegins();
  EXPECT_TRUE(quorum.Full());
  quorum.Wait(3);
  quorum.Wait(1);
  EXPECT_EQ(quorum.TakeWaiting(), std::nullopt);
  quorum.OnVerdictEnds();
  EXPECT_EQ(quorum.TakeWaiting(), 3u);
  EXPECT_EQ(quorum.TakeWaiting(), 1u);
  EXPECT_EQ(quorum.TakeWaiting(), std::nullopt);
}

TEST(QuorumTest, AwaitsVerdictsOnceTheyMayBeEnough) {
  Quorum quorum(3, 2, 3);
  quorum.OnVerdictBegins();
  EXPECT_FALSE(quorum.AwaitsVerdicts());
  quorum.OnVerdictBegins();
  EXPECT_TRUE(quorum.AwaitsVerdicts());
}

}  // namespace
}  // namespace sluice
