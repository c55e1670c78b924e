#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/storage/blocks/segment_read.h"
#include "lib/storage/stripe/stripe_name.h"
#include "tests/unit/storage/blocks/eight_workers.h"
#include "tests/unit/storage/blocks/test_cluster.h"

// Partial responses, and responses in several messages.
namespace sluice {
namespace {

using testing::Drain;
using testing::EightWorkers;
using testing::Error;
using testing::Fault;
using testing::FlipByte;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::Healthy;
using testing::OneByteLess;
using testing::OneByteMore;
using testing::ReadBlock;
using ::testing::SizeIs;
using testing::TestCluster;

// A partial response like an aggregator's, with zeros for missing bytes of the stripe.
Fault Partial(uint64_t offset, uint64_t length) {
  Fault fault{.edit = [=](std::string& data) {
    for (uint64_t i = 0; i < length && offset + i < data.size(); ++i) data[offset + i] = 0;
  }};
  v1::MissingSruRange& missing = fault.missing.emplace_back();
  missing.set_offset(offset);
  missing.set_length(length);
  missing.set_reason("below");
  return fault;
}

TEST(SegmentReadPartialTest, WhatAnAggregatorBelowCannotHaveIsAGapOfThoseBytes) {
  TestCluster cluster(EightWorkers());
  cluster.worker(5).SpoilSrus([](const v1::ReadSruRequest& request) {
    EXPECT_TRUE(request.allow_partial());
    return Partial(1000, 96);
  });
  cluster.worker(6).SpoilSrus([](const auto&) { return Partial(0, 4096); });
  const auto result = ReadBlock(cluster, 0, /*allow_partial=*/true);
  ASSERT_TRUE(result.status.ok()) << result.status;
  ASSERT_THAT(result.missing, SizeIs(2));
  EXPECT_EQ(result.missing[0].offset, 5u * 4096 + 1000);
  EXPECT_EQ(result.missing[0].length, 96u);
  EXPECT_THAT(result.missing[0].reason, HasSubstr("worker 5"));
  EXPECT_THAT(result.missing[0].reason, HasSubstr("below"));
  EXPECT_EQ(result.missing[1].offset, 6u * 4096);
  EXPECT_EQ(result.missing[1].length, 4096u);
  EXPECT_EQ(result.summary.bytes_read, 7u * 4096 - 96);
  std::string expected = cluster.SourceBlock(0);
  expected.replace(5 * 4096 + 1000, 96, std::string(96, '\0')).replace(6 * 4096, 4096, std::string(4096, '\0'));
  EXPECT_TRUE(result.data == expected);
  EXPECT_EQ(cluster.Metric("sluice_call_retries_total"), 0);
  EXPECT_EQ(cluster.Metric("sluice_goodput_bytes_total", "primary"), 7 * 4096 - 96);
}

TEST(SegmentReadPartialTest, AGapTellsWhetherItsBytesAreLost) {
  TestCluster cluster(EightWorkers());
  cluster.worker(3).SpoilSrus([](const auto&) { return testing::FlipByte(); });
  cluster.worker(5).SpoilSrus([](const auto&) {
    Fault fault = Partial(1000, 96);
    fault.missing[0].set_data_loss(true);
    return fault;
  });
  cluster.worker(6).SpoilSrus([](const auto&) { return Partial(0, 4096); });
  const auto result = ReadBlock(cluster, 0, /*allow_partial=*/true);
  ASSERT_THAT(result.missing, SizeIs(3));
  EXPECT_EQ(result.missing[0].code, absl::StatusCode::kDataLoss);
  EXPECT_EQ(result.missing[1].code, absl::StatusCode::kDataLoss);
  EXPECT_EQ(result.missing[2].code, absl::StatusCode::kUnavailable);
}

TEST(SegmentReadPartialTest, OnlyWhatNoReplicaHasIsAGap) {
  TestCluster cluster(EightWorkers(2));
  cluster.worker(5).SpoilSrus(
      [](const v1::ReadSruRequest& request) { return request.replica() == 0 ? Partial(100, 200) : Healthy(); });
  cluster.worker(6).SpoilSrus(
      [](const v1::ReadSruRequest& request) { return request.replica() == 1 ? Partial(200, 200) : Healthy(); });
  const auto result = ReadBlock(cluster, 0, /*allow_partial=*/true);
  ASSERT_TRUE(result.status.ok()) << result.status;
  ASSERT_THAT(result.missing, SizeIs(1));
  EXPECT_EQ(result.missing[0].offset, 5u * 4096 + 200);
  EXPECT_EQ(result.missing[0].length, 100u);
  cluster.worker(6).SpoilSrus([](const v1::ReadSruRequest& request) {
    return request.replica() == 1 ? Error(absl::StatusCode::kUnavailable) : Healthy();
  });
  const auto first_alone = ReadBlock(cluster, 0, /*allow_partial=*/true);
  ASSERT_THAT(first_alone.missing, SizeIs(1));
  EXPECT_EQ(first_alone.missing[0].offset, 5u * 4096 + 100);
  EXPECT_EQ(first_alone.missing[0].length, 200u);
  cluster.worker(6).SpoilSrus(nullptr);
  const auto whole = ReadBlock(cluster, 0, /*allow_partial=*/true);
  EXPECT_THAT(whole.missing, SizeIs(0));
  EXPECT_TRUE(whole.data == cluster.SourceBlock(0));
}

TEST(SegmentReadPartialTest, AnAnswerInPartThatMakesNoSenseIsDataLoss) {
  TestCluster cluster(EightWorkers());
  cluster.worker(5).SpoilSrus([](const auto&) { return Partial(1000, 96); });
  const auto not_asked_for = ReadBlock(cluster, 0);
  EXPECT_THAT(not_asked_for.status, HasCode(absl::StatusCode::kDataLoss));
  for (const auto& [offset, length] : {std::pair<uint64_t, uint64_t>{4090, 7}, {4096, 1}, {10, 0}, {~uint64_t{0}, 2}}) {
    cluster.worker(5).SpoilSrus([offset = offset, length = length](const auto&) {
      Fault fault = Partial(offset, length);
      fault.edit = nullptr;
      return fault;
    });
    const auto result = ReadBlock(cluster, 0, /*allow_partial=*/true);
    ASSERT_THAT(result.missing, SizeIs(1));
    EXPECT_EQ(result.missing[0].length, 4096u) << offset;
    EXPECT_THAT(result.missing[0].reason, HasSubstr("not within what was asked for"));
  }
}

// Large SRUs are sent in messages of 64 KiB.
TestCluster::Options LargeSrus(uint32_t replicas = 1) {
  return {.workers = 2,
          .file_bytes = 1'500'000,
          .sru_bytes = 300'000,
          .replicas = replicas,
          .reader = {.sru_timeout = absl::Seconds(1)}};
}

TEST(SegmentReadPartialTest, AnSruOfSeveralMessagesIsChecked) {
  TestCluster cluster(LargeSrus());
  const auto whole = Drain(*cluster.reader().Open("data", std::nullopt));
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  EXPECT_TRUE(whole.data == cluster.source());
  for (const Fault& fault : {FlipByte(), OneByteLess(), OneByteMore()}) {
    cluster.worker(1).SpoilSrus([&](const auto&) { return fault; });
    const auto result = ReadBlock(cluster, 1);
    EXPECT_THAT(result.status, HasCode(absl::StatusCode::kDataLoss));
    for (const ReadChunk& chunk : result.chunks) {
      EXPECT_TRUE(chunk.data == cluster.source().substr(chunk.offset, chunk.data.size())) << "handed out unchecked";
    }
  }
}

TEST(SegmentReadPartialTest, AReplicaBeginsAnewWhereTheOneBeforeFailedHalfway) {
  TestCluster cluster(LargeSrus(2));
  for (const Fault& fault : {FlipByte(), OneByteLess(), OneByteMore()}) {
    cluster.MakeReader();
    cluster.worker(1).SpoilSrus([&](const auto&) { return fault; });
    const auto result = Drain(*cluster.reader().Open("data", std::nullopt));
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_TRUE(result.data == cluster.source());
  }
}

TEST(SegmentReadPartialTest, WhatIsMissingOfALaterMessageIsAGapThere) {
  TestCluster cluster(LargeSrus(2));
  cluster.worker(1).SpoilSrus([](const v1::ReadSruRequest& request) {
    return request.replica() == 0 ? Partial(request.offset() + 200'000, 1000) : Healthy();
  });
  cluster.worker(0).SpoilSrus([](const v1::ReadSruRequest& request) {
    return request.replica() == 1 ? Partial(request.offset() + 200'500, 1000) : Healthy();
  });
  const auto result = ReadBlock(cluster, 0, /*allow_partial=*/true);
  ASSERT_TRUE(result.status.ok()) << result.status;
  ASSERT_THAT(result.missing, SizeIs(1));
  EXPECT_EQ(result.missing[0].offset, 500'500u);
  EXPECT_EQ(result.missing[0].length, 500u);
  std::string expected = cluster.SourceBlock(0);
  expected.replace(500'500, 500, std::string(500, '\0'));
  EXPECT_TRUE(result.data == expected);
}

// The response that fills the gap of the first response has wrong bytes elsewhere.
TEST(SegmentReadPartialTest, AnAnswerThatFillsAGapOverwritesNothingElse) {
  TestCluster cluster(EightWorkers(2));
  cluster.worker(5).SpoilSrus(
      [](const v1::ReadSruRequest& request) { return request.replica() == 0 ? Partial(100, 200) : Healthy(); });
  cluster.worker(6).SpoilSrus([](const v1::ReadSruRequest& request) {
    if (request.replica() == 0) return Healthy();
    return Fault{.edit = [](std::string& data) { data.assign(data.size(), 'x'); }};
  });
  const auto result = ReadBlock(cluster, 0, /*allow_partial=*/true);
  ASSERT_THAT(result.missing, SizeIs(1));
  EXPECT_EQ(result.missing[0].offset, 5u * 4096 + 100);
  EXPECT_EQ(result.missing[0].length, 200u);
  std::string expected = cluster.SourceBlock(0);
  expected.replace(5 * 4096 + 100, 200, std::string(200, '\0'));
  EXPECT_TRUE(result.data == expected);
}

}  // namespace
}  // namespace sluice
