#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/fan_out/fan_out_logic_driver.h"

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

// Events that must not come, in a build that counts them.
class FanOutLogicBreachTest : public ::testing::Test {
 protected:
  FanOutLogicBreachTest() { driver_.logic.breaches() = Breaches(Breaches::Response::kCount); }

  std::string Condition() {
    const std::optional<InvariantBreach> breach = driver_.logic.breaches().Take();
    return breach.has_value() ? std::string(breach->condition) : "";
  }

  testing::FanOutLogicDriver driver_ = testing::FanOutLogicDriver::Sent({}, {{0}, {1}});
};

TEST_F(FanOutLogicBreachTest, ASecondEndIsCountedAndDoesNotEndTheFanOutBeforeTheOtherAttempt) {
  driver_.OnMessage(0);
  driver_.OnEnded(0);
  driver_.OnAccepted(0);
  EXPECT_EQ(Condition(), "");
  EXPECT_THAT(driver_.OnEnded(0), IsEmpty());
  EXPECT_EQ(Condition(), "!state.ended");
  driver_.OnMessage(1);
  driver_.OnEnded(1);
  EXPECT_THAT(driver_.OnAccepted(1), Contains(testing::End()));
  EXPECT_EQ(driver_.result().answered, 2);
  EXPECT_EQ(Condition(), "");
}

TEST_F(FanOutLogicBreachTest, AMessageAfterTheEndIsCountedAndDropped) {
  driver_.OnEnded(0, absl::UnavailableError("x"));
  EXPECT_THAT(driver_.OnMessage(0), Contains(testing::Drop(0)));
  EXPECT_EQ(Condition(), "!state.ended");
}

TEST_F(FanOutLogicBreachTest, AVerdictWithoutAMessageIsCountedAndIgnored) {
  EXPECT_THAT(driver_.OnAccepted(0), IsEmpty());
  EXPECT_EQ(Condition(), "state.unsettled > 0");
  EXPECT_EQ(driver_.outcome(0), std::nullopt);
}

TEST_F(FanOutLogicBreachTest, ASecondStartOrRequestIsCountedAndIgnored) {
  EXPECT_THAT(driver_.Start(), IsEmpty());
  EXPECT_EQ(Condition(), "!started_");
  EXPECT_THAT(driver_.OnSent(0), IsEmpty());
  EXPECT_EQ(Condition(), "!state.ended && !state.time.sent()");
}

}  // namespace
}  // namespace sluice
