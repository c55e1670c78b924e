#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sluice/plan.h"

#include "tests/unit/model/profiles.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

int64_t SruOfBlock(int64_t block_bytes, int64_t workers) {
  return (block_bytes + workers - 1) / workers;
}

// Checks the numbers that the paper prints, and the numbers that its equations give for them.
TEST(PlanSlotsTest, SruOf10KbFrom15Workers) {
  const auto plan = PlanSlots(PaperProfile(), 10'000, 15);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->sru_packets, 10);
  EXPECT_EQ(plan->wnd_max_packets, 6);
  EXPECT_EQ(plan->batch_workers, 5);
  EXPECT_EQ(plan->batches, 3);
  EXPECT_EQ(plan->sru_time, absl::Nanoseconds(1'866'400));
  EXPECT_EQ(plan->slot, absl::Milliseconds(2));
  EXPECT_EQ(plan->block_time, absl::Nanoseconds(5'886'400));
  EXPECT_NEAR(plan->goodput_bps, 203.86e6, 0.005e6);
}

TEST(PlanSlotsTest, OneWorkerMoreNeedsOneMoreBatch) {
  const auto plan = PlanSlots(PaperProfile(), 10'000, 16);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->batches, 4);
  EXPECT_EQ(plan->block_time, absl::Nanoseconds(7'886'400));
  EXPECT_NEAR(plan->goodput_bps, 162.30e6, 0.005e6);
}

TEST(PlanSlotsTest, BlockOf1MbFrom25Workers) {
  const auto plan = PlanSlots(PaperProfile(), SruOfBlock(1'000'000, 25), 25);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->sru_packets, 40);
  EXPECT_EQ(plan->wnd_max_packets, 24);
  EXPECT_EQ(plan->batch_workers, 1);
  EXPECT_EQ(plan->batches, 25);
  EXPECT_EQ(plan->sru_time, absl::Nanoseconds(2'837'600));
  EXPECT_EQ(plan->slot, absl::Milliseconds(3));
  EXPECT_NEAR(plan->goodput_bps, 106.87e6, 0.005e6);
}

TEST(PlanSlotsTest, BlockOf1MbFrom21WorkersIsNotApplicable) {
  const auto plan = PlanSlots(PaperProfile(), SruOfBlock(1'000'000, 21), 21);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(plan.status().message()),
              HasSubstr("31 packets or 32240 bytes into a buffer of 32000 bytes, 240 too many"));
}

TEST(PlanSlotsTest, PersistentConnectionTakesTwoRoundsAndItsWholeSru) {
  const auto plan = PlanSlots(PersistentProfile(), 10'000, 16);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->wnd_max_packets, 10);
  EXPECT_EQ(plan->batch_workers, 3);
  EXPECT_EQ(plan->batches, 6);
  EXPECT_EQ(plan->sru_time, absl::Nanoseconds(86'400 + 2 * 356'000));
  EXPECT_EQ(plan->slot, absl::Milliseconds(1));
}

TEST(PlanSlotsTest, LargerInitialWindowSavesRounds) {
  LinkProfile profile = PaperProfile();
  profile.initial_window_packets = 4;  // 4 and then 6 of the SRU's 10 packets: 2 rounds instead of 4
  const auto plan = PlanSlots(profile, 10'000, 15);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->sru_time, absl::Nanoseconds(86'400 + 3 * 356'000));
  EXPECT_EQ(plan->wnd_max_packets, 7);
  EXPECT_EQ(plan->batch_workers, 4);
}

TEST(PlanSlotsTest, BufferOfPacketsIsTheSameWithPackets) {
  LinkProfile profile = PaperProfile();
  profile.buffer_bytes = 0;
  profile.buffer_packets = 30;
  const auto plan = PlanSlots(profile, 10'000, 15);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->batch_workers, 5);
  EXPECT_EQ(plan->sru_time, absl::Nanoseconds(86'400 + 5 * (100'000 + 249'600)));  // B = 30 * 1040 bytes
}

TEST(PlanSlotsTest, SlotOfWholeTimerStepsIsNotOneLonger) {
  LinkProfile profile = PaperProfile();
  profile.timer_jitter = absl::Nanoseconds(133'600);  // T + d_max is 2 ms
  EXPECT_EQ(PlanSlots(profile, 10'000, 15)->slot, absl::Milliseconds(2));
  profile.timer_jitter += absl::Nanoseconds(1);
  EXPECT_EQ(PlanSlots(profile, 10'000, 15)->slot, absl::Milliseconds(3));
}

// Plays eq. 20 worker by worker. It uses only n, k, T and the slot from the plan.
TEST(PlanSlotsTest, BlockTimeIsThatOfTheSlotsPlayedOut) {
  const LinkProfile profile = PaperProfile();
  for (int64_t workers = 1; workers <= 100; ++workers) {
    const auto plan = PlanSlots(profile, 10'000, workers);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<int64_t> in_batch(plan->batches, 0);
    absl::Duration last_end;
    for (int64_t worker = 0; worker < workers; ++worker) {
      const int64_t batch = worker % plan->batches;
      ++in_batch[batch];
      const absl::Duration asked_at_the_latest = plan->slot * batch + profile.timer_jitter;
      last_end = std::max(last_end, asked_at_the_latest + plan->sru_time);
      EXPECT_LE(asked_at_the_latest + plan->sru_time, plan->slot * (batch + 1)) << "runs into the next slot";
    }
    const auto [smallest, largest] = std::ranges::minmax(in_batch);
    EXPECT_LE(largest, plan->batch_workers) << workers;
    EXPECT_LE(largest - smallest, 1) << workers;
    EXPECT_EQ(last_end, plan->block_time) << workers;
    EXPECT_DOUBLE_EQ(plan->goodput_bps, 80'000.0 * workers / absl::ToDoubleSeconds(last_end)) << workers;
  }
}

TEST(PlanSlotsTest, SizesOutOfBoundsAreRefusedByName) {
  const LinkProfile profile = PaperProfile();
  for (const int64_t size :
       {std::numeric_limits<int64_t>::min(), int64_t{-1}, int64_t{0}, kMaxResponseBytes + 1, kMaxInt64}) {
    const absl::Status status = PlanSlots(profile, size, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), absl::StrCat("sru_bytes is ", size, ", it must be from 1 to 4294967296"));
  }
  for (const int64_t workers :
       {std::numeric_limits<int64_t>::min(), int64_t{-1}, int64_t{0}, kMaxWorkers + 1, kMaxInt64}) {
    const absl::Status status = PlanSlots(profile, 1, workers).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), absl::StrCat("workers is ", workers, ", it must be from 1 to 1048576"));
  }
}

TEST(PlanSlotsTest, WorstValidProfileAndSizesDoNotOverflow) {
  LinkProfile worst;
  worst.capacity_bytes_per_second = 1e3;
  worst.buffer_bytes = int64_t{1} << 40;
  worst.propagation_rtt = absl::Seconds(10);
  worst.packet_payload_bytes = 1;
  worst.frame_bytes = worst.ack_frame_bytes = int64_t{1} << 17;
  worst.timer_granularity = worst.timer_jitter = absl::Seconds(10);
  worst.initial_window_packets = 1;
  for (const bool fresh : {true, false}) {
    worst.fresh_connections = fresh;
    ASSERT_TRUE(worst.Validate().ok());
    const SlotPlan plan = PlanSlotsAtLeastOne(worst, kMaxInt64, kMaxInt64);
    EXPECT_EQ(plan.sru_packets, kMaxResponseBytes);
    EXPECT_EQ(plan.batches, kMaxWorkers);
    EXPECT_LT(plan.block_time, absl::InfiniteDuration());
    EXPECT_GT(plan.goodput_bps, 0);
  }
}

TEST(PlanSlotsAtLeastOneTest, IsTheSamePlanWhereOneFits) {
  const auto plan = PlanSlots(PaperProfile(), 10'000, 16);
  const SlotPlan same = PlanSlotsAtLeastOne(PaperProfile(), 10'000, 16);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(same.batch_workers, plan->batch_workers);
  EXPECT_EQ(same.block_time, plan->block_time);
}

TEST(PlanSlotsAtLeastOneTest, LetsOneGoAloneWhereNoneFits) {
  const SlotPlan plan = PlanSlotsAtLeastOne(PaperProfile(), 48'000, 21);
  EXPECT_EQ(plan.batch_workers, 1);
  EXPECT_EQ(plan.batches, 21);
  EXPECT_EQ(plan.slot, absl::Milliseconds(3));
}

}  // namespace
}  // namespace sluice
