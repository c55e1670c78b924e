#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduling/link_schedule.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

TEST(SchedulePolicyTest, NamesAreRead) {
  for (const SchedulePolicy policy :
       {SchedulePolicy::kUnscheduled, SchedulePolicy::kBatches, SchedulePolicy::kRolling, SchedulePolicy::kGrants}) {
    EXPECT_EQ(ParseSchedulePolicy(SchedulePolicyName(policy)).value(), policy);
  }
  EXPECT_EQ(SchedulePolicyName(SchedulePolicy::kRolling), "rolling");
}

TEST(SchedulePolicyTest, UnknownNameIsRefusedWithTheKnownOnes) {
  const absl::Status status = ParseSchedulePolicy("Rolling").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"Rolling\""));
  EXPECT_THAT(std::string(status.message()), HasSubstr("unscheduled, batches, rolling or grants"));
}
}  // namespace
}  // namespace sluice
