#include "lib/blocks/sru_ranges.h"

#include "sluice/plan.h"

#include "gtest/gtest.h"
#include "lib/rpc/call_group.h"

namespace sluice {
namespace {

int64_t CostOfRange(const LinkSchedule::Options& options, int64_t range_bytes) {
  return BufferCostBytes(options.profile, range_bytes + kRpcOverheadBytes);
}

TEST(SruRangesTest, ASmallSruIsReadWhole) {
  const LinkSchedule::Options options;
  EXPECT_EQ(RangeBytes(options, 32768, 1), 1);
  EXPECT_EQ(RangeBytes(options, 32768, 4096), 4096);
}

TEST(SruRangesTest, ThreeRangesOfALargeSruFitTheBudgetTogetherAndAFourthPacketDoesNot) {
  const LinkSchedule::Options options;
  for (const int64_t budget_bytes : {8192, 32768, 100000, 1 << 20}) {
    const int64_t range_bytes = RangeBytes(options, budget_bytes, 64 << 20);
    EXPECT_LE(3 * CostOfRange(options, range_bytes), budget_bytes);
    EXPECT_GT(3 * CostOfRange(options, range_bytes + 1), budget_bytes - 3 * options.profile.frame_bytes);
    EXPECT_EQ((range_bytes + kRpcOverheadBytes) % options.profile.packet_payload_bytes, 0) << "full packets";
  }
}

TEST(SruRangesTest, ABudgetBelowOnePacketStillMakesProgress) {
  for (const int64_t budget_bytes : {1, 100, 1514, 4541}) {
    EXPECT_GE(RangeBytes({}, budget_bytes, 10000), 1) << budget_bytes;
    EXPECT_LE(RangeBytes({}, budget_bytes, 10000), 1448) << budget_bytes;
  }
}

TEST(SruRangesTest, APacketSmallerThanTheFramingOfAnRpcStillMakesProgress) {
  LinkSchedule::Options options;
  options.profile.SetMtu(100);
  EXPECT_EQ(RangeBytes(options, 300, 10000), 1);
}

TEST(SruRangesTest, NoRangeIsLargerThanWhatACallIsChargedFor) {
  LinkSchedule::Options options;
  options.max_in_flight_per_call_bytes = 20272;
  const int64_t most_cost_bytes = BufferCostBytes(options.profile, 20272);
  for (const int64_t budget_bytes : {32768, 262144, 1 << 20}) {
    for (const int64_t sru_bytes : {20000, 20272, 30000, 1 << 20}) {
      EXPECT_LE(CostOfRange(options, RangeBytes(options, budget_bytes, sru_bytes)), most_cost_bytes) << budget_bytes;
    }
  }
  EXPECT_EQ(RangeBytes(options, 1 << 20, 1 << 20), 20272 - kRpcOverheadBytes);
  options.max_in_flight_per_call_bytes = 1;
  EXPECT_EQ(RangeBytes(options, 32768, 1 << 20), options.profile.packet_payload_bytes) << "and still makes progress";
}

TEST(SruRangesTest, NoAnswerIsLargerThanAMessageOfGrpcMayBe) {
  EXPECT_EQ(RangeBytes({}, int64_t{1} << 40, 64 << 20), kMaxRangeBytes);
  EXPECT_EQ(RangeBytes({.discipline = Discipline::kUnscheduled}, 1, 64 << 20), kMaxRangeBytes);
}

TEST(SruRangesTest, UnscheduledReadsAnSruWholeWhateverTheBudget) {
  EXPECT_EQ(RangeBytes({.discipline = Discipline::kUnscheduled}, 1, 1 << 20), 1 << 20);
}

}  // namespace
}  // namespace sluice
