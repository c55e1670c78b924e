#include "lib/cli/link_log.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/cli/logging.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

struct Budget {
  std::optional<int64_t> bytes;
  std::optional<int64_t> floor_bytes;
};

// The log of a link whose port has a buffer of 32 KB.
std::string LogOf(const Budget& budget, bool buffer_known = true) {
  Link::Options options;
  options.schedule.profile.buffer_bytes = 32 << 10;
  options.schedule.budget_bytes = budget.bytes;
  options.budget.floor_bytes = budget.floor_bytes;
  options.budget.buffer_known = buffer_known;
  ::testing::internal::CaptureStderr();
  StartLogging();
  EXPECT_TRUE(SetLogLevel("warning").ok());
  WarnOfLargeBudget(options);
  return ::testing::internal::GetCapturedStderr();
}

TEST(WarnOfLargeBudgetTest, WarnsOfABudgetOrAFloorAboveTheBuffer) {
  EXPECT_THAT(LogOf({.bytes = (32 << 10) + 1}), HasSubstr("budget_bytes=32769 buffer_bytes=32768"));
  EXPECT_THAT(LogOf({.floor_bytes = (32 << 10) + 1}), HasSubstr("budget_bytes=32769 buffer_bytes=32768"));
}

TEST(WarnOfLargeBudgetTest, DoesNotWarnOfABudgetThatFitsOrOfAnUnknownBuffer) {
  EXPECT_EQ(LogOf({.bytes = 32 << 10, .floor_bytes = 32 << 10}), "");
  EXPECT_EQ(LogOf({}), "");
  EXPECT_EQ(LogOf({.bytes = 64 << 10, .floor_bytes = 64 << 10}, /*buffer_known=*/false), "");
}

TEST(BreachLogTest, LogsOneLineForEachPlace) {
  ::testing::internal::CaptureStderr();
  StartLogging();
  EXPECT_TRUE(SetLogLevel("info").ok());
  const auto log = BreachLog();
  for (int i = 0; i < 3; ++i) log({.condition = "a >= 0", .file = "lib/a.cc", .line = 7, .breaches = 2});
  log({.condition = "b >= 0", .file = "lib/a.cc", .line = 8, .breaches = 1});
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_THAT(text, HasSubstr("level=error"));
  EXPECT_THAT(text, HasSubstr("condition=\"a >= 0\" place=lib/a.cc:7 breaches=2"));
  EXPECT_THAT(text, HasSubstr("condition=\"b >= 0\" place=lib/a.cc:8 breaches=1"));
}

}  // namespace
}  // namespace sluice
