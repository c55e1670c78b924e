#include "lib/storage/stripe/stripe_layout.h"

#include <cstdint>
#include <set>
#include <tuple>

#include "gtest/gtest.h"

namespace sluice {
namespace {

StripeLayout Layout(uint64_t file_bytes, uint32_t sru_bytes, uint32_t workers, uint32_t replicas = 1) {
  v1::Manifest manifest;
  manifest.set_file_bytes(file_bytes);
  manifest.set_sru_bytes(sru_bytes);
  manifest.set_workers(workers);
  manifest.set_replicas(replicas);
  for (uint64_t i = 0; i < (file_bytes + sru_bytes - 1) / sru_bytes; ++i) manifest.add_sru_crc32c(100 + i);
  return StripeLayout::Create(manifest).value();
}

TEST(StripeLayoutTest, RefusesAnInvalidManifest) {
  EXPECT_EQ(StripeLayout::Create(v1::Manifest()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(StripeLayoutTest, OnlyTheLastSruIsShorter) {
  const StripeLayout layout = Layout(25, 10, 2);
  ASSERT_EQ(layout.SruCount(), 3u);
  EXPECT_EQ(layout.SruLength(0), 10u);
  EXPECT_EQ(layout.SruLength(1), 10u);
  EXPECT_EQ(layout.SruLength(2), 5u);
  EXPECT_EQ(layout.SruOffset(2), 20u);
  EXPECT_EQ(layout.SruCrc32c(2), 102u);
  EXPECT_EQ(Layout(30, 10, 2).SruLength(2), 10u);
}

TEST(StripeLayoutTest, DealsSrusRoundRobinAndShiftsReplicasByOneWorker) {
  const StripeLayout layout = Layout(70, 10, 3, 2);
  EXPECT_EQ(layout.Worker(0, 0), 0u);
  EXPECT_EQ(layout.Worker(4, 0), 1u);
  EXPECT_EQ(layout.Worker(4, 1), 2u);
  EXPECT_EQ(layout.Worker(5, 1), 0u);
  EXPECT_EQ(layout.OffsetInStripe(2), 0u);
  EXPECT_EQ(layout.OffsetInStripe(3), 10u);
  EXPECT_EQ(layout.OffsetInStripe(6), 20u);
}

TEST(StripeLayoutTest, AStripeHoldsExactlyTheSrusThatAreItsOwn) {
  for (const uint64_t file_bytes : {0, 1, 9, 10, 11, 29, 30, 31, 60, 95}) {
    const StripeLayout layout = Layout(file_bytes, 10, 3, 3);
    for (uint32_t replica = 0; replica < 3; ++replica) {
      std::set<uint64_t> seen;
      uint64_t bytes = 0;
      for (uint32_t worker = 0; worker < 3; ++worker) {
        bytes += layout.StripeBytes(worker, replica);
        for (uint64_t i = 0; i < layout.StripeSrus(worker, replica); ++i) {
          const uint64_t sru = layout.SruInStripe(worker, replica, i);
          EXPECT_TRUE(seen.insert(sru).second);
          EXPECT_EQ(layout.Worker(sru, replica), worker);
          EXPECT_EQ(layout.OffsetInStripe(sru), i * 10);
        }
      }
      EXPECT_EQ(seen.size(), layout.SruCount()) << file_bytes;
      EXPECT_EQ(bytes, file_bytes);
    }
  }
}

TEST(StripeLayoutTest, CutsTheFileIntoDataBlocks) {
  const StripeLayout layout = Layout(75, 10, 3);
  EXPECT_EQ(layout.BlockBytes(), 30u);
  ASSERT_EQ(layout.BlockCount(), 3u);
  EXPECT_EQ(layout.BlockSrus(1), (StripeLayout::SruRange{3, 3}));
  EXPECT_EQ(layout.BlockSrus(2), (StripeLayout::SruRange{6, 2}));
  EXPECT_EQ(layout.BlockOffset(2), 60u);
  EXPECT_EQ(layout.BlockLength(1), 30u);
  EXPECT_EQ(layout.BlockLength(2), 15u);
  EXPECT_EQ(Layout(60, 10, 3).BlockCount(), 2u);
}

TEST(StripeLayoutTest, AnEmptyFileHasNothing) {
  const StripeLayout layout = Layout(0, 10, 3);
  EXPECT_EQ(layout.SruCount(), 0u);
  EXPECT_EQ(layout.BlockCount(), 0u);
  EXPECT_EQ(layout.StripeBytes(2, 0), 0u);
}

TEST(StripeLayoutTest, HoldsAtTheLargestSizes) {
  const StripeLayout layout = Layout(uint64_t{1000} << 26, 1 << 26, 16384, 16384);
  EXPECT_EQ(layout.BlockBytes(), uint64_t{1} << 40);
  EXPECT_EQ(layout.SruOffset(999), uint64_t{999} << 26);
  EXPECT_EQ(layout.Worker(999, 16383), 998u);
  EXPECT_EQ(layout.BlockLength(0), uint64_t{1000} << 26);
}

}  // namespace
}  // namespace sluice
