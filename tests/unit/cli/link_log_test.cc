#include "lib/cli/link_log.h"

#include <cstdint>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/cli/logging.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What a link logs at its start, whose port has a buffer of 32 KB.
std::string LogOf(std::optional<int64_t> budget_bytes, bool buffer_known = true) {
  Link::Options options;
  options.schedule.profile.buffer_bytes = 32 << 10;
  options.schedule.budget_bytes = budget_bytes;
  options.budget.buffer_known = buffer_known;
  ::testing::internal::CaptureStderr();
  StartLogging();
  EXPECT_TRUE(SetLogLevel("warning").ok());
  EXPECT_TRUE(CreateLoggedLink(options).ok());
  return ::testing::internal::GetCapturedStderr();
}

TEST(CreateLoggedLinkTest, WarnsOfABudgetAboveTheBuffer) {
  EXPECT_THAT(LogOf((32 << 10) + 1), HasSubstr("budget_bytes=32769 buffer_bytes=32768"));
}

TEST(CreateLoggedLinkTest, DoesNotWarnOfABudgetThatFitsOrWhoseBufferNobodyKnows) {
  EXPECT_THAT(LogOf(32 << 10), Not(HasSubstr("budget")));
  EXPECT_THAT(LogOf(std::nullopt), Not(HasSubstr("budget")));
  EXPECT_THAT(LogOf(64 << 10, /*buffer_known=*/false), Not(HasSubstr("budget")));
}

}  // namespace
}  // namespace sluice
