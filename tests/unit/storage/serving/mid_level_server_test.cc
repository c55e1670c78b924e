#include "lib/storage/serving/mid_level_server.h"

#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/storage/stripe/manifest.h"
#include "lib/storage/stripe/stripe_store.h"
#include "tests/unit/storage/serving/mid_level_server_fixture.h"
#include "tests/unit/storage/serving/sru_read.h"
#include "tests/unit/storage/serving/sru_request.h"
#include "tests/unit/storage/serving/test_tree.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::Eventually;
using testing::Hang;
using testing::HasCode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kPatience;
using testing::MidLevelServerTest;
using ::testing::SizeIs;
using testing::TestTree;
using testing::TestWorker;

TEST_F(MidLevelServerTest, AFileComesThroughTwoLevelsAndEachBlockIsReadOnce) {
  Start();
  const auto result = tree_->ReadFile();
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(result.data == tree_->source());
  EXPECT_EQ(result.header.sru_bytes, 4000u);
  EXPECT_EQ(result.header.workers, 2u);
  // gRPC may finish a call after its client has the response, and the call is counted then.
  EXPECT_TRUE(
      Eventually([&] { return Metric("sluice_worker_sent_bytes_total", "") == static_cast<double>(Stripe().size()); }));
  // The requests are for each SRU of the stripe and its manifest. If this aggregator received the request for the
  // manifest of the whole file, it read a file of one SRU below.
  const double manifests = Metric("sluice_worker_manifest_requests_total", "ok");
  EXPECT_EQ(tree_->aggregator(1).Requests(), 6 * 4 + 1 + 2 * manifests);
}

TEST_F(MidLevelServerTest, TheWorkersBelowReceiveTheTraceContext) {
  Start();
  const std::string parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const auto read =
      testing::Drain(*tree_->reader().Open("data", std::nullopt, {.metadata = {{"traceparent", parent}}}));
  ASSERT_TRUE(read.status.ok()) << read.status;
  for (size_t aggregator = 0; aggregator < tree_->size(); ++aggregator) {
    for (size_t worker = 0; worker < 4; ++worker) {
      const auto calls = tree_->aggregator(aggregator).worker(worker).seen();
      EXPECT_THAT(calls, ::testing::Not(IsEmpty()));
      for (const testing::Seen& seen : calls) {
        EXPECT_THAT(seen.metadata, ::testing::Contains(::testing::Pair("traceparent", parent))) << seen.method;
      }
    }
  }
}

TEST_F(MidLevelServerTest, AnswersWithExactlyTheRange) {
  Start();
  for (const auto& [offset, length] :
       std::vector<std::pair<uint64_t, uint32_t>>{{0, 1}, {999, 2}, {3999, 2}, {4000, 4000}, {100, 20000}}) {
    const grpc::Status status = Read(SruRequest("data", 1, offset, length));
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response_.data(), Stripe().substr(offset, length));
    EXPECT_THAT(response_.missing(), SizeIs(0));
  }
}

// Four SRUs below make one SRU of 256 KiB.
TestTree::Options LargeSrus() {
  TestTree::Options options;
  options.sru_bytes = kSruMessageBytes;
  options.file_bytes = 4 * 4 * size_t{kSruMessageBytes};
  return options;
}

TEST_F(MidLevelServerTest, ARangeComesInMessagesOf64KiB) {
  Start(LargeSrus());
  grpc::ClientContext context;
  const auto reader = stub_->ReadSru(&context, SruRequest("data", 1, 100, 5 * kSruMessageBytes));
  std::vector<size_t> bytes;
  std::string data;
  for (v1::ReadSruResponse next; reader->Read(&next);) {
    bytes.push_back(next.data().size());
    data += next.data();
  }
  ASSERT_TRUE(reader->Finish().ok());
  EXPECT_THAT(bytes,
              ElementsAre(kSruMessageBytes, kSruMessageBytes, kSruMessageBytes, kSruMessageBytes, kSruMessageBytes));
  EXPECT_TRUE(data == Stripe().substr(100, 5 * kSruMessageBytes));
  EXPECT_TRUE(Eventually([&] { return Metric("sluice_worker_sent_bytes_total", "") == 5.0 * kSruMessageBytes; }));
  EXPECT_EQ(Metric("sluice_worker_sru_requests_total", "ok"), 1);
}

TEST_F(MidLevelServerTest, NothingIsSentOfARangeThatTheStripeEndsBefore) {
  Start(LargeSrus());
  const auto bytes = static_cast<uint32_t>(Stripe().size());
  EXPECT_EQ(Read(SruRequest("data", 1, 1, bytes)).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(response_.data(), "");
  EXPECT_TRUE(Read(SruRequest("data", 1, 1, bytes - 1)).ok());
}

// The last of four workers below hangs. The bytes that have arrived are sent. The client disconnects while the server
// waits for the rest.
TEST_F(MidLevelServerTest, TheFirstMessagesLeaveBeforeTheLastByteIsThere) {
  Start(LargeSrus());
  TestWorker& last = tree_->aggregator(1).worker(3);
  last.SpoilSrus([](const auto&) { return Hang(); });
  grpc::ClientContext context;
  const auto reader = stub_->ReadSru(&context, SruRequest("data", 1, 0, 4 * kSruMessageBytes));
  std::string data;
  for (v1::ReadSruResponse next; data.size() < 3 * kSruMessageBytes && reader->Read(&next);) data += next.data();
  EXPECT_TRUE(data == Stripe().substr(0, 3 * kSruMessageBytes));
  EXPECT_TRUE(last.Await([](const auto& counts) { return counts.open > 0; }));
  EXPECT_EQ(last.counts().cancelled, 0);
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(last.Await([](const auto& counts) { return counts.open == 0 && counts.cancelled > 0; }));
  EXPECT_TRUE(Eventually([&] { return Metric("sluice_worker_sru_requests_total", "cancelled") == 1; }));
}

TEST_F(MidLevelServerTest, AnErrorOrAGapAfterTheFirstMessageIsThatOfItsPiece) {
  Start(LargeSrus());
  tree_->aggregator(1).worker(2).SpoilSrus([](const auto&) { return testing::Error(absl::StatusCode::kInternal); });
  v1::ReadSruRequest request = SruRequest("data", 1, 0, 4 * kSruMessageBytes);
  EXPECT_EQ(Read(request).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(response_.data() == Stripe().substr(0, 2 * kSruMessageBytes));

  request.set_allow_partial(true);
  grpc::ClientContext context;
  const auto reader = stub_->ReadSru(&context, request);
  std::vector<v1::ReadSruResponse> messages;
  for (v1::ReadSruResponse next; reader->Read(&next);) messages.push_back(next);
  ASSERT_TRUE(reader->Finish().ok());
  ASSERT_THAT(messages, SizeIs(4));
  for (size_t i = 0; i < 4; ++i) EXPECT_THAT(messages[i].missing(), SizeIs(i == 2 ? 1 : 0)) << i;
  EXPECT_EQ(messages[2].missing(0).offset(), 2 * kSruMessageBytes);
  EXPECT_EQ(messages[2].missing(0).length(), kSruMessageBytes);
  EXPECT_TRUE(messages[3].data() == Stripe().substr(3 * kSruMessageBytes, kSruMessageBytes));
}

TEST_F(MidLevelServerTest, AnAnswerCostsAPieceAndNotItsSru) {
  TestTree::Options options = LargeSrus();
  options.mid_level.server.max_answer_bytes = kSruMessageBytes;
  Start(options);
  EXPECT_TRUE(Read(SruRequest("data", 1, 0, 4 * kSruMessageBytes)).ok());
  EXPECT_TRUE(response_.data() == Stripe().substr(0, 4 * kSruMessageBytes));
}

TEST_F(MidLevelServerTest, LargeSrusComeThroughTwoLevels) {
  Start(LargeSrus());
  const auto result = tree_->ReadFile();
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(result.data == tree_->source());
}

TEST_F(MidLevelServerTest, RefusesWithTheStatusOfAWorker) {
  Start();
  using grpc::StatusCode;
  const std::string long_name(200, 'a');
  v1::ReadSruRequest replica = SruRequest("data", 1, 0, 10);
  replica.set_replica(1);
  const std::pair<v1::ReadSruRequest, StatusCode> cases[] = {
      {SruRequest("other", 1, 0, 10), StatusCode::NOT_FOUND},
      {SruRequest("data", 0, 0, 10), StatusCode::NOT_FOUND},
      {replica, StatusCode::NOT_FOUND},
      {SruRequest("data", 1, Stripe().size(), 10), StatusCode::OUT_OF_RANGE},
      {SruRequest("data", 1, std::numeric_limits<uint64_t>::max(), 10), StatusCode::OUT_OF_RANGE},
      {SruRequest("data", 1, 0, 0), StatusCode::INVALID_ARGUMENT},
      {SruRequest("data", 1, 0, kMaxSruBytes + 1), StatusCode::INVALID_ARGUMENT},
      {SruRequest("../data", 1, 0, 10), StatusCode::INVALID_ARGUMENT},
      {SruRequest(long_name, 1, 0, 10), StatusCode::INVALID_ARGUMENT},
  };
  for (const auto& [request, code] : cases) {
    const grpc::Status status = Read(request);
    EXPECT_EQ(status.error_code(), code) << request.ShortDebugString() << status.error_message();
    EXPECT_FALSE(status.error_message().empty());
  }
  EXPECT_TRUE(Eventually([&] { return Metric("sluice_worker_sru_requests_total", "invalid") == 4; }));
  EXPECT_EQ(Metric("sluice_worker_sru_requests_total", "not_found"), 3);
}

TEST_F(MidLevelServerTest, AnswersWithTheManifestInParts) {
  Start();
  v1::ReadManifestRequest request;
  request.set_file("data");
  request.set_worker(1);
  request.set_length(40);
  std::string stored;
  do {
    request.set_offset(stored.size());
    grpc::ClientContext context;
    v1::ReadManifestResponse response;
    const grpc::Status status = stub_->ReadManifest(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    stored += response.data();
    if (stored.size() == response.total_bytes()) break;
    ASSERT_EQ(response.data().size(), 40u);
  } while (stored.size() < 1000);
  const auto manifest = DecodeManifest(stored);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->sru_bytes(), 4000u);
  EXPECT_EQ(manifest->file_bytes(), tree_->source().size());
}

TEST_F(MidLevelServerTest, ADeadlineWithoutRoomForTheReserveIsAnsweredAtOnce) {
  TestTree::Options options;
  options.mid_level.server.deadline_reserve = absl::Hours(1);
  Start(options);
  const grpc::Status status = Read(SruRequest("data", 1, 0, 10));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("the deadline leaves less than 1h"));
  EXPECT_EQ(tree_->aggregator(1).Requests(), 0);
}

// The workers hang, and the caller's deadline is far away, so it does not end the call.
TEST_F(MidLevelServerTest, WhatHangsBelowEndsWithTheReserveLeft) {
  TestTree::Options options;
  options.mid_level.server.deadline_reserve = kPatience - absl::Seconds(2);
  Start(options);
  ASSERT_TRUE(Read(SruRequest("data", 1, 0, 10)).ok());
  tree_->aggregator(1).SpoilSrus([](const auto&) { return Hang(); });
  v1::ReadSruRequest request = SruRequest("data", 1, 8000, 10);
  EXPECT_EQ(Read(request).error_code(), grpc::StatusCode::UNAVAILABLE);
  request = SruRequest("data", 1, 16000, 10);
  request.set_allow_partial(true);
  ASSERT_TRUE(Read(request).ok());
  ASSERT_THAT(response_.missing(), SizeIs(1));
  EXPECT_EQ(response_.missing(0).offset(), 16000u);
  EXPECT_EQ(response_.missing(0).length(), 10u);
}

TEST_F(MidLevelServerTest, WhatHangsBelowEndsWithTheBlockTimeoutOfTheReader) {
  TestTree::Options options;
  options.mid_level.blocks.reader = {.sru_timeout = 2 * kPatience, .block_timeout = absl::Milliseconds(500)};
  Start(options);
  ASSERT_TRUE(Read(SruRequest("data", 1, 0, 10)).ok());
  tree_->aggregator(1).SpoilSrus([](const auto&) { return Hang(); });
  EXPECT_EQ(Read(SruRequest("data", 1, 8000, 10)).error_code(), grpc::StatusCode::UNAVAILABLE);
}

// The block is first read ahead with the deadline of a range in the previous block, and then again with its own
// deadline.
TEST_F(MidLevelServerTest, WhatWasReadAheadAndHangsEndsWithTheReserveLeft) {
  TestTree::Options options;
  options.mid_level.server.deadline_reserve = kPatience - absl::Seconds(2);
  options.mid_level.blocks.reader.sru_timeout = 2 * kPatience;
  Start(options);
  ASSERT_TRUE(Read(SruRequest("data", 1, 0, 10)).ok());
  tree_->aggregator(1).SpoilSrus(
      [](const auto& request) { return request.offset() == 2000 ? Hang() : testing::Healthy(); });
  ASSERT_TRUE(Read(SruRequest("data", 1, 4000, 10), kPatience - absl::Seconds(1)).ok());
  v1::ReadSruRequest request = SruRequest("data", 1, 8000, 10);
  request.set_allow_partial(true);
  const grpc::Status status = Read(request);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_THAT(response_.missing(), SizeIs(1));
  EXPECT_EQ(response_.missing(0).offset(), 8000u);
}

TEST_F(MidLevelServerTest, ACallThatIsCancelledCancelsTheReadsBelow) {
  Start();
  tree_->aggregator(1).SpoilSrus([](const auto&) { return Hang(); });
  absl::Notification done;
  AsyncSruRead read(*stub_, SruRequest("data", 1, 0, 10), [&](const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
    done.Notify();
  });
  EXPECT_TRUE(tree_->aggregator(1).worker(1).Await([](const auto& counts) { return counts.holding > 0; }));
  read.context().TryCancel();
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(tree_->aggregator(1).worker(1).Await([](const auto& counts) { return counts.cancelled > 0; }));
  EXPECT_TRUE(Eventually([&] { return Metric("sluice_worker_sru_requests_total", "cancelled") == 1; }));
}

TEST_F(MidLevelServerTest, RefusesAnswersBeyondItsMemory) {
  TestTree::Options options;
  options.mid_level.server.max_answer_bytes = 10;
  Start(options);
  EXPECT_EQ(Read(SruRequest("data", 1, 0, 11)).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Eventually([&] { return Read(SruRequest("data", 1, 0, 10)).ok(); }));
}

TEST_F(MidLevelServerTest, ADeadWorkerIsAGapOfItsSrusAndCoverageGoesUp) {
  Start();
  tree_->aggregator(1).worker(2).Stop();
  const auto strict = tree_->ReadFile();
  EXPECT_THAT(strict.status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(strict.status.message()), HasSubstr("SRU 1 of file \"data\": worker 1"));
  EXPECT_THAT(std::string(strict.status.message()), HasSubstr("SRU 2 of file \"data.w0001.s0\": worker 2"));

  const auto partial = tree_->ReadFile(/*allow_partial=*/true);
  ASSERT_TRUE(partial.status.ok()) << partial.status;
  ASSERT_THAT(partial.missing, SizeIs(6));
  std::string expected = tree_->source();
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(partial.missing[i].offset, 8000 * i + 4000 + 2000);
    EXPECT_EQ(partial.missing[i].length, 1000u);
    EXPECT_THAT(partial.missing[i].reason, HasSubstr("worker 2"));
    expected.replace(partial.missing[i].offset, 1000, std::string(1000, '\0'));
  }
  EXPECT_TRUE(partial.data == expected);
  EXPECT_EQ(partial.summary.bytes_read, 44000u);
  EXPECT_EQ(partial.summary.Coverage(), 0.88);
}

TEST_F(MidLevelServerTest, WhatIsCorruptBelowIsDataLossAtTheTop) {
  Start();
  tree_->aggregator(1).worker(2).SpoilSrus([](const auto&) { return testing::FlipByte(); });
  v1::ReadSruRequest request = SruRequest("data", 1, 0, 4000);
  EXPECT_EQ(Read(request).error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_THAT(tree_->ReadFile().status, HasCode(absl::StatusCode::kDataLoss));
  request.set_allow_partial(true);
  ASSERT_TRUE(Read(request).ok());
  ASSERT_THAT(response_.missing(), SizeIs(1));
  EXPECT_TRUE(response_.missing(0).data_loss());
}

TEST_F(MidLevelServerTest, AnotherAggregatorHasWhatADeadWorkerBelowDoesNot) {
  Start({.replicas = 2});
  tree_->aggregator(1).worker(2).Stop();
  for (const bool allow_partial : {false, true}) {
    const auto result = tree_->ReadFile(allow_partial);
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_THAT(result.missing, IsEmpty());
    EXPECT_TRUE(result.data == tree_->source());
  }
  // If both aggregators lack bytes, only those bytes are missing.
  tree_->aggregator(0).worker(2).Stop();
  tree_->aggregator(0).worker(3).Stop();
  tree_->ForgetBlocks();
  const auto result = tree_->ReadFile(/*allow_partial=*/true);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.summary.bytes_read, 38000u);
  for (const MissingBytes& missing : result.missing) {
    EXPECT_EQ(missing.offset % 4000, 2000u);
    EXPECT_LE(missing.length, 1000u);
  }
}

TEST_F(MidLevelServerTest, AFileThatIsStripedAnewIsReadAnew) {
  Start();
  ASSERT_TRUE(tree_->ReadFile().status.ok());
  const std::string source = testing::SourceBytes(40000);
  tree_->Stripe(source, /*replace=*/true);
  // The cached manifests and blocks of the old file remain usable.
  EXPECT_TRUE(tree_->ReadFile().data == tree_->source());
  tree_->aggregator(0).cache().Forget("data.w0000.s0");
  EXPECT_FALSE(tree_->ReadFile().status.ok());
  EXPECT_TRUE(Eventually([&] { return tree_->ReadFile().data == source; }));
}

// The upper level still uses the manifest of the first version, and requests that version.
TEST_F(MidLevelServerTest, AnAggregatorKeepsNothingOfAnotherVersionThanTheOneAskedFor) {
  Start();
  ASSERT_TRUE(tree_->ReadFile().status.ok());
  tree_->Stripe(OtherSource(), /*replace=*/true);
  tree_->ForgetBlocks();
  EXPECT_FALSE(tree_->ReadFile().status.ok());
  tree_->Stripe(tree_->source(), /*replace=*/true);
  EXPECT_TRUE(Eventually([&] { return tree_->ReadFile().data == tree_->source(); }));
}

// The upper level cannot verify an SRU with gaps.
TEST_F(MidLevelServerTest, APartialReadHasNoBytesOfAnotherVersion) {
  Start();
  ASSERT_TRUE(tree_->ReadFile().status.ok());
  for (size_t i = 0; i < tree_->size(); ++i) tree_->aggregator(i).worker(2).Stop();
  tree_->Stripe(OtherSource(), /*replace=*/true);
  tree_->ForgetBlocks();
  const auto partial = tree_->ReadFile(/*allow_partial=*/true);
  ASSERT_TRUE(partial.status.ok()) << partial.status;
  std::string expected = tree_->source();
  for (const MissingBytes& missing : partial.missing) {
    expected.replace(missing.offset, missing.length, std::string(missing.length, '\0'));
  }
  EXPECT_TRUE(partial.data == expected);
}

}  // namespace
}  // namespace sluice
