#include "lib/cli/descriptor_limit.h"

#include <string>

#include <sys/resource.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/has_code.h"

namespace sluice {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;

TEST(DescriptorLimitTest, TheSoftLimitBecomesTheHardOne) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_GT(before.rlim_max, 256U);
  rlimit low = before;
  low.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(RaiseDescriptorLimit(), before.rlim_max);
  rlimit after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(DescriptorLimitTest, ConnectionsLeaveSomeToWorkers) {
  EXPECT_TRUE(CheckDescriptorLimit(16384, 17408).ok());
  const absl::Status few = CheckDescriptorLimit(16384, 17407);
  EXPECT_THAT(few, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(few.message()),
              HasSubstr("limits.connections is 16384, which with 1024 others needs 17408 file descriptors; the process "
                        "may have 17407"));
}

}  // namespace
}  // namespace sluice
