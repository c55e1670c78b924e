#include "lib/cli/log_limit.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Optional;

class LogLimitTest : public ::testing::Test {
 protected:
  LogLimit limit_{seconds(60), 3};
  LogLimit::TimePoint now_{std::chrono::hours(1)};
};

TEST_F(LogLimitTest, AKeyIsLoggedOnceAnIntervalWithTheNumberThatWasLeftOut) {
  EXPECT_THAT(limit_.Take("a", now_), Optional(0));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(limit_.Take("a", now_ += seconds(10)), std::nullopt);
  EXPECT_THAT(limit_.Take("b", now_), Optional(0)) << "another key";
  EXPECT_EQ(limit_.Take("a", now_ += milliseconds(9999)), std::nullopt);
  EXPECT_THAT(limit_.Take("a", now_ += milliseconds(1)), Optional(6));
  EXPECT_EQ(limit_.Take("a", now_), std::nullopt);
  EXPECT_THAT(limit_.Take("a", now_ + seconds(60)), Optional(1));
}

// Clients choose the keys.
TEST_F(LogLimitTest, KeysWithoutRoomAreOnlyCounted) {
  for (const char* key : {"a", "b", "c"}) EXPECT_THAT(limit_.Take(key, now_), Optional(0));
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(limit_.Take(absl::StrCat("junk", i), now_), std::nullopt);
  EXPECT_EQ(limit_.Take("c", now_), std::nullopt);
  now_ += seconds(60);
  EXPECT_THAT(limit_.Take("a", now_), Optional(1000));
  EXPECT_THAT(limit_.Take("junk0", now_), Optional(1)) << "with that of a key that it displaced";
  EXPECT_THAT(limit_.Take("junk1", now_), Optional(0));
  EXPECT_EQ(limit_.Take("junk2", now_), std::nullopt);
}

}  // namespace
}  // namespace sluice
