#include "lib/net/happy_eyeballs.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::testing {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;

std::vector<std::string> Order(const std::vector<std::string>& addresses) {
  std::vector<WorkerAddress> list;
  for (const std::string& address : addresses) list.push_back({address});
  std::vector<std::string> order;
  for (const WorkerAddress& address : AlternateFamilies(list)) order.push_back(address.text);
  return order;
}

TEST(AlternateFamiliesTest, BeginsWithTheFirstAddressAndKeepsTheOrderOfAFamily) {
  EXPECT_THAT(Order({"[fd00::2]:1", "[fd00::1]:1", "10.0.0.2:1", "10.0.0.1:1"}),
              ElementsAre("[fd00::2]:1", "10.0.0.2:1", "[fd00::1]:1", "10.0.0.1:1"));
  EXPECT_THAT(Order({"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "[fd00::1]:1"}),
              ElementsAre("10.0.0.1:1", "[fd00::1]:1", "10.0.0.2:1", "10.0.0.3:1"));
  EXPECT_THAT(Order({"unix:/a"}), ElementsAre("unix:/a"));
  EXPECT_THAT(Order({}), ElementsAre());
}

class HappyEyeballsTest : public ::testing::Test {
 protected:
  static void Expect(const HappyEyeballs::Actions& actions, std::optional<size_t> attempt,
                     std::optional<std::chrono::milliseconds> wake, bool failed = false) {
    EXPECT_EQ(actions.attempt, attempt);
    EXPECT_EQ(actions.wake, wake.has_value() ? kBegin + *wake : TimePoint::max());
    EXPECT_EQ(actions.failed, failed);
  }

  static constexpr TimePoint kBegin{std::chrono::seconds(1)};
};

TEST_F(HappyEyeballsTest, OneAddressIsTriedOnce) {
  HappyEyeballs race(1);
  Expect(race.Begin(kBegin), 0, std::nullopt);
  Expect(race.OnAttemptFailed(kBegin + 9000ms), std::nullopt, std::nullopt, /*failed=*/true);
}

TEST_F(HappyEyeballsTest, AnAddressThatDoesNotRespondIsFollowedByTheNextAfterTheDelay) {
  HappyEyeballs race(3);
  Expect(race.Begin(kBegin), 0, 250ms);
  Expect(race.OnTimer(kBegin + 249ms), std::nullopt, 250ms);
  Expect(race.OnTimer(kBegin + 250ms), 1, 500ms);
  Expect(race.OnTimer(kBegin + 510ms), 2, std::nullopt);
}

TEST_F(HappyEyeballsTest, AnAddressThatFailsIsFollowedByTheNextAtOnce) {
  HappyEyeballs race(3);
  Expect(race.Begin(kBegin), 0, 250ms);
  Expect(race.OnAttemptFailed(kBegin + 1ms), 1, 251ms);
  Expect(race.OnAttemptFailed(kBegin + 2ms), 2, std::nullopt);
  Expect(race.OnAttemptFailed(kBegin + 3ms), std::nullopt, std::nullopt, /*failed=*/true);
}

TEST_F(HappyEyeballsTest, FailsOnlyAfterTheLastAttemptHasFailed) {
  HappyEyeballs race(2);
  Expect(race.Begin(kBegin), 0, 250ms);
  Expect(race.OnTimer(kBegin + 250ms), 1, std::nullopt);
  Expect(race.OnAttemptFailed(kBegin + 251ms), std::nullopt, std::nullopt);
  Expect(race.OnAttemptFailed(kBegin + 9000ms), std::nullopt, std::nullopt, /*failed=*/true);
}

}  // namespace
}  // namespace sluice::testing
