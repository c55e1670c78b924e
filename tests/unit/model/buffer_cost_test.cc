#include <algorithm>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "sluice/plan.h"

#include "tests/unit/model/profiles.h"

namespace sluice {
namespace {

LinkProfile PacketBuffer(int64_t packets) {
  LinkProfile profile = PersistentProfile();
  profile.buffer_bytes = 0;
  profile.buffer_packets = packets;
  return profile;
}

TEST(PacketsTest, LastPacketMayBePartlyFilled) {
  const LinkProfile profile = PaperProfile();
  EXPECT_EQ(Packets(profile, 0), 0);
  EXPECT_EQ(Packets(profile, 1), 1);
  EXPECT_EQ(Packets(profile, 1000), 1);
  EXPECT_EQ(Packets(profile, 1001), 2);
}

TEST(WireBytesTest, EveryPacketCarriesItsHeaders) {
  const LinkProfile profile = PaperProfile();
  EXPECT_EQ(WireBytes(profile, 0), 0);
  EXPECT_EQ(WireBytes(profile, 1), 41);
  EXPECT_EQ(WireBytes(profile, 10'000), 10'400);
  EXPECT_EQ(WireBytes(profile, 10'001), 10'441);
}

TEST(WireBytesTest, SizesBeyondTheBoundCountAsTheBound) {
  LinkProfile worst = PaperProfile();
  worst.packet_payload_bytes = 1;
  worst.frame_bytes = int64_t{1} << 17;
  ASSERT_TRUE(worst.Validate().ok());
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Packets(worst, kMax), kMaxResponseBytes);
  EXPECT_EQ(WireBytes(worst, kMax), kMaxResponseBytes << 17);
  EXPECT_EQ(WireBytes(worst, std::numeric_limits<int64_t>::min()), 0);
}

TEST(BufferBudgetTest, CountsPacketsAsFullFrames) {
  EXPECT_EQ(BufferBudgetBytes(PaperProfile()), 32'000);
  EXPECT_EQ(BufferBudgetBytes(PacketBuffer(30)), 31'200);
}

TEST(BufferCostTest, PersistentResponseCostsItsWireBytes) {
  EXPECT_EQ(BufferCostBytes(PersistentProfile(), 10'000), 10'400);
  EXPECT_EQ(BufferCostBytes(PersistentProfile(), 10'001), 10'441);
}

TEST(BufferCostTest, FreshResponseCostsNoMoreThanItsLargestWindow) {
  EXPECT_EQ(BufferCostBytes(PaperProfile(), 10'000), 6 * 1040);
  EXPECT_EQ(BufferCostBytes(PaperProfile(), 1), 41);
}

TEST(BufferCostTest, PacketBufferIsTakenByThePacket) {
  EXPECT_EQ(BufferCostBytes(PacketBuffer(30), 1), 1040);
  EXPECT_EQ(BufferCostBytes(PacketBuffer(30), 10'001), 11 * 1040);
}

// With equal SRUs of full packets, the budget admits the number of eq. 14.
TEST(BufferCostTest, AdmitsAsManySrusAsTheSlots) {
  for (const LinkProfile& profile : {PaperProfile(), PersistentProfile(), PacketBuffer(30)}) {
    for (int64_t sru_bytes = 1000; sru_bytes <= 30'000; sru_bytes += 1000) {
      const int64_t admitted = BufferBudgetBytes(profile) / BufferCostBytes(profile, sru_bytes);
      const auto plan = PlanSlots(profile, sru_bytes, 1);
      EXPECT_EQ(admitted, plan.ok() ? plan->batch_workers : 0) << sru_bytes;
    }
  }
}

TEST(BufferCostTest, NeverFallsAsThePayloadGrows) {
  for (const LinkProfile& profile : {PaperProfile(), PersistentProfile(), PacketBuffer(30)}) {
    for (int64_t payload = 1; payload < 70'000; ++payload) {
      ASSERT_LE(BufferCostBytes(profile, payload - 1), BufferCostBytes(profile, payload)) << payload;
    }
  }
}

TEST(LargestPayloadTest, IsTheLargestThatFits) {
  for (const LinkProfile& profile : {PaperProfile(), PersistentProfile(), PacketBuffer(30)}) {
    for (int64_t cost = 1040; cost < 70'000; cost += 7) {
      const int64_t largest = LargestPayloadWithin(profile, cost);
      ASSERT_LE(BufferCostBytes(profile, largest), cost);
      ASSERT_GT(BufferCostBytes(profile, largest + 1), cost);
    }
  }
}

TEST(LargestPayloadTest, IsNothingWhereNotEvenOneByteFits) {
  EXPECT_EQ(LargestPayloadWithin(PersistentProfile(), 40), 0);
  EXPECT_EQ(LargestPayloadWithin(PersistentProfile(), 41), 1);
  EXPECT_EQ(LargestPayloadWithin(PacketBuffer(1), 1039), 0);
  EXPECT_EQ(LargestPayloadWithin(PacketBuffer(1), 1040), 1000);
  EXPECT_EQ(LargestPayloadWithin(PersistentProfile(), std::numeric_limits<int64_t>::min()), 0);
}

TEST(LargestPayloadTest, IsNeverAboveTheBound) {
  EXPECT_EQ(LargestPayloadWithin(PersistentProfile(), std::numeric_limits<int64_t>::max()), kMaxResponseBytes);
}

}  // namespace
}  // namespace sluice
