#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduling/link_schedule.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

TEST(DisciplineTest, NamesAreRead) {
  for (const Discipline discipline :
       {Discipline::kUnscheduled, Discipline::kBatches, Discipline::kRolling, Discipline::kGrants}) {
    EXPECT_EQ(ParseDiscipline(DisciplineName(discipline)).value(), discipline);
  }
  EXPECT_EQ(DisciplineName(Discipline::kRolling), "rolling");
}

TEST(DisciplineTest, UnknownNameIsRefusedWithTheKnownOnes) {
  const absl::Status status = ParseDiscipline("Rolling").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"Rolling\""));
  EXPECT_THAT(std::string(status.message()), HasSubstr("unscheduled, batches, rolling or grants"));
}
}  // namespace
}  // namespace sluice
