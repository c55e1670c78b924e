#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/schedule_driver.h"

// Tests calls that were given up while their streams are still open.
namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Two responses are ready. The first one holds the budget of 10,000 bytes, in parts of a third.
class UnwantedTest : public ::testing::Test {
 protected:
  static constexpr int64_t kPart = 2991;
  static constexpr int64_t kBytes = 1'000'000;

  void SetUp() override {
    link_.set_may_idle(true);
    link_.Submit(At(0ms), {kBytes, kBytes});
    link_.Ready(At(20ms), 0, kBytes);
    link_.Ready(At(20ms), 1, kBytes);
  }
  // Returns which calls are granted when a part of each of `tags` arrives.
  std::string Turns(TimePoint now, const std::vector<uint64_t>& tags) {
    std::string turns;
    for (const uint64_t tag : tags) {
      for (const std::string& action : link_.Receive(now, tag, kPart)) turns += action.substr(6, 1);
    }
    return turns;
  }

  ScheduleDriver link_{GrantsOptions()};
};

TEST_F(UnwantedTest, TheResponseHasNoTurnWhileAnotherHasOne) {
  EXPECT_EQ(Turns(At(21ms), {0, 0}), "00");
  EXPECT_THAT(link_.GiveUp(At(21ms), 0), IsEmpty());
  EXPECT_EQ(Turns(At(22ms), {0, 1, 0, 1}), "1111");
}

TEST_F(UnwantedTest, TheResponseIsGrantedWhenNoOtherWaits) {
  link_.GiveUp(At(21ms), 0);
  link_.Finish(At(22ms), 1);
  EXPECT_EQ(Turns(At(23ms), {0}), "0");
}

TEST_F(UnwantedTest, AResponseThatBecomesReadyLaterComesAfterTheOthers) {
  link_.Submit(At(21ms), {kBytes});
  link_.GiveUp(At(22ms), 2);
  link_.Ready(At(23ms), 2, kBytes);
  EXPECT_EQ(Turns(At(24ms), {0, 0, 0, 0}), "0000");
  link_.Finish(At(25ms), 0);
  link_.Finish(At(25ms), 1);
  EXPECT_EQ(Turns(At(26ms), {2}), "2");
}

TEST_F(UnwantedTest, ItsDeadlineEndsItNoMore) {
  link_.Submit(At(21ms), {kBytes}, At(25ms));
  link_.Ready(At(22ms), 2, kBytes);
  link_.GiveUp(At(23ms), 2);
  EXPECT_THAT(link_.Timer(At(26ms)), IsEmpty());
}

TEST_F(UnwantedTest, RequestsGoOnHoweverManyResponsesAreUnwanted) {
  for (uint64_t call = 2; call < 100; ++call) {
    ASSERT_THAT(link_.Submit(At(21ms), {kBytes}), ElementsAre(absl::StrCat("send ", call)));
    link_.Ready(At(21ms), call, kBytes);
    link_.GiveUp(At(21ms), call);
  }
}

}  // namespace
}  // namespace sluice
