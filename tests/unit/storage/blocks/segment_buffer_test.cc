#include "lib/storage/blocks/segment_buffer.h"

#include <memory>
#include <string>
#include <variant>

#include "gtest/gtest.h"
#include "lib/storage/stripe/crc32c.h"
#include "prometheus/registry.h"

namespace sluice {
namespace {

class SegmentBufferTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kFirst = 2;  // SRU of the file

  // Returns a buffer of all SRUs of a file except the first two.
  SegmentBuffer BufferOf(uint32_t sru_bytes, size_t file_bytes) {
    sru_bytes_ = sru_bytes;
    source_.clear();
    for (size_t i = 0; i < file_bytes; ++i) source_.push_back(static_cast<char>('a' + i % 26));
    v1::Manifest manifest;
    manifest.set_sru_bytes(sru_bytes);
    manifest.set_workers(4);
    manifest.set_replicas(2);
    manifest.set_file_bytes(file_bytes);
    for (size_t at = 0; at < file_bytes; at += sru_bytes) {
      manifest.add_sru_crc32c(Crc32c(std::string_view(source_).substr(at, sru_bytes)));
    }
    const auto layout = std::make_shared<const StripeLayout>(StripeLayout::Create(manifest).value());
    return SegmentBuffer(layout, kFirst, layout->SruCount() - kFirst);
  }

  absl::string_view BytesOf(const SegmentBuffer& buffer, uint64_t sru) const {
    const ByteRange bytes = buffer.BytesOf(sru);
    return absl::string_view(source_).substr(kFirst * sru_bytes_ + bytes.begin, bytes.end - bytes.begin);
  }
  void Fill(SegmentBuffer& buffer, uint64_t sru, WorkerKind from = WorkerKind::kPrimary) {
    buffer.Write(buffer.BytesOf(sru).begin, BytesOf(buffer, sru));
    ASSERT_TRUE(buffer.Check(sru).ok());
    buffer.Settle(sru, from);
  }

  double Goodput(const std::string& kind) {
    for (const auto& family : registry_.Collect()) {
      if (family.name != "sluice_goodput_bytes_total") continue;
      for (const auto& metric : family.metric) {
        if (metric.label.front().value == kind) return metric.counter.value;
      }
    }
    return -1;
  }

  uint32_t sru_bytes_ = 0;
  std::string source_;
  prometheus::Registry registry_;
  LinkMetrics metrics_{registry_};
};

TEST_F(SegmentBufferTest, HandsOutInOrderWhatIsSettled) {
  SegmentBuffer buffer = BufferOf(100'000, 600'000);
  EXPECT_FALSE(buffer.Take(metrics_).has_value());
  Fill(buffer, 1);
  EXPECT_FALSE(buffer.Take(metrics_).has_value()) << "the one before is not here";
  Fill(buffer, 0, WorkerKind::kReplica);
  const auto part = buffer.Take(metrics_);
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(std::get<ReadChunk>(*part).offset, 200'000u);
  EXPECT_EQ(std::get<ReadChunk>(*part).data, source_.substr(200'000, 200'000));
  EXPECT_EQ(Goodput("primary"), 100'000);
  EXPECT_EQ(Goodput("replica"), 100'000);
  EXPECT_FALSE(buffer.Take(metrics_).has_value());
  EXPECT_FALSE(buffer.drained());
  Fill(buffer, 2);
  Fill(buffer, 3);
  ASSERT_TRUE(buffer.Take(metrics_).has_value());
  EXPECT_TRUE(buffer.drained());
  EXPECT_EQ(buffer.ArrivedBytes(), 400'000u);
}

TEST_F(SegmentBufferTest, SmallSrusWaitForOthersUnlessTheyAreTheLast) {
  SegmentBuffer buffer = BufferOf(40'000, 5 * 40'000 + 1);
  Fill(buffer, 0);
  EXPECT_FALSE(buffer.Take(metrics_).has_value());
  Fill(buffer, 1);
  EXPECT_EQ(std::get<ReadChunk>(*buffer.Take(metrics_)).data.size(), 80'000u);
  Fill(buffer, 2);
  EXPECT_FALSE(buffer.Take(metrics_).has_value());
  Fill(buffer, 3);
  EXPECT_EQ(std::get<ReadChunk>(*buffer.Take(metrics_)).data.size(), 40'001u);
  EXPECT_TRUE(buffer.drained());
}

TEST_F(SegmentBufferTest, ChunksHaveAtMostOneMebibyte) {
  SegmentBuffer buffer = BufferOf(3 << 20, 9 << 20);
  Fill(buffer, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(std::get<ReadChunk>(*buffer.Take(metrics_)).data.size(), 1u << 20);
  EXPECT_TRUE(buffer.drained());
}

TEST_F(SegmentBufferTest, CheckFindsAByteThatIsWrong) {
  SegmentBuffer buffer = BufferOf(1000, 4000);
  std::string data(BytesOf(buffer, 1));
  data[500] ^= 1;
  buffer.Write(buffer.BytesOf(1).begin, data);
  EXPECT_TRUE(absl::IsDataLoss(buffer.Check(1)));
  buffer.Write(buffer.BytesOf(1).begin, BytesOf(buffer, 1));
  EXPECT_TRUE(buffer.Check(1).ok());
}

TEST_F(SegmentBufferTest, GapsOfOneKindThatFollowEachOtherAreOne) {
  SegmentBuffer buffer = BufferOf(1000, 6000);
  Fill(buffer, 0);
  buffer.SettleWithGaps(1, WorkerKind::kPrimary, {{1500, 2000}}, absl::UnavailableError("one"));
  buffer.SettleWithGaps(2, WorkerKind::kPrimary, {{2000, 3000}}, absl::UnavailableError("two"));
  buffer.SettleWithGaps(3, WorkerKind::kPrimary, {{3000, 3100}}, absl::DataLossError("three"));
  EXPECT_EQ(std::get<ReadChunk>(*buffer.Take(metrics_)).data.size(), 1500u);
  const auto gap = std::get<MissingBytes>(*buffer.Take(metrics_));
  EXPECT_EQ(gap.offset, 3500u);
  EXPECT_EQ(gap.length, 1500u);
  EXPECT_EQ(gap.reason, "one");
  const auto lost = std::get<MissingBytes>(*buffer.Take(metrics_));
  EXPECT_EQ(lost.length, 100u);
  EXPECT_EQ(lost.code, absl::StatusCode::kDataLoss);
  EXPECT_EQ(std::get<ReadChunk>(*buffer.Take(metrics_)).data.size(), 900u);
  EXPECT_TRUE(buffer.drained());
  EXPECT_EQ(buffer.ArrivedBytes(), 2400u);
}

}  // namespace
}  // namespace sluice
