#include "lib/storage/blocks/segment_read.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/storage/stripe/stripe_name.h"
#include "tests/notification.h"
#include "tests/unit/storage/blocks/eight_workers.h"
#include "tests/unit/storage/blocks/test_cluster.h"

// Every read fetches segments; these tests read a stream of one segment.
namespace sluice {
namespace {

using testing::Drain;
using testing::EightWorkers;
using testing::Error;
using testing::Fault;
using testing::FlipByte;
using testing::Garbage;
using testing::Hang;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::Healthy;
using testing::OneByteLess;
using testing::OneByteMore;
using testing::ReadBlock;
using testing::ReadResult;
using ::testing::SizeIs;
using testing::Slow;
using testing::TestCluster;

// Every fault of a single response, and the status of a read without another replica.
struct FaultCase {
  const char* name;
  Fault fault;
  absl::StatusCode status;
};
std::vector<FaultCase> EveryFault() {
  return {
      {"hangs", Hang(), absl::StatusCode::kDeadlineExceeded},
      {"flips a byte", FlipByte(), absl::StatusCode::kDataLoss},
      {"too much", OneByteMore(), absl::StatusCode::kDataLoss},
      {"too little", OneByteLess(), absl::StatusCode::kDataLoss},
      {"nothing", {.edit = [](std::string& data) { data.clear(); }}, absl::StatusCode::kDataLoss},
      {"far too much", {.edit = [](std::string& data) { data.resize(5 << 20); }}, absl::StatusCode::kUnavailable},
      {"garbage", Garbage(), absl::StatusCode::kDataLoss},
      {"cancels", Error(absl::StatusCode::kCancelled), absl::StatusCode::kUnavailable},
      {"unknown", Error(absl::StatusCode::kUnknown), absl::StatusCode::kUnavailable},
      {"invalid", Error(absl::StatusCode::kInvalidArgument), absl::StatusCode::kUnavailable},
      {"deadline", Error(absl::StatusCode::kDeadlineExceeded), absl::StatusCode::kDeadlineExceeded},
      {"not found", Error(absl::StatusCode::kNotFound), absl::StatusCode::kDataLoss},
      {"denied", Error(absl::StatusCode::kPermissionDenied), absl::StatusCode::kUnavailable},
      {"exhausted", Error(absl::StatusCode::kResourceExhausted), absl::StatusCode::kUnavailable},
      {"precondition", Error(absl::StatusCode::kFailedPrecondition), absl::StatusCode::kUnavailable},
      {"out of range", Error(absl::StatusCode::kOutOfRange), absl::StatusCode::kDataLoss},
      {"internal", Error(absl::StatusCode::kInternal), absl::StatusCode::kUnavailable},
      {"unavailable", Error(absl::StatusCode::kUnavailable), absl::StatusCode::kUnavailable},
      {"data loss", Error(absl::StatusCode::kDataLoss), absl::StatusCode::kDataLoss},
  };
}

TEST(SegmentReadTest, AnAnswerInSeveralMessagesIsPutTogether) {
  TestCluster cluster({.workers = 2,
                       .file_bytes = 800000,
                       .sru_bytes = 200000,
                       .schedule = {.profile = {.buffer_bytes = 4 << 20}, .budget_bytes = 4 << 20}});
  std::atomic<uint32_t> longest = 0;
  cluster.SpoilSrus([&](const v1::ReadSruRequest& request) {
    longest = std::max(longest.load(), request.length());
    return Healthy();
  });
  const ReadResult result = ReadBlock(cluster, 1);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(result.data == cluster.SourceBlock(1));
  EXPECT_EQ(longest, 200000u);
}

TEST(SegmentReadTest, AFaultOfOneWorkerIsTheDocumentedStatusAndTheNextReadWorks) {
  TestCluster cluster(EightWorkers());
  for (const FaultCase& fault : EveryFault()) {
    SCOPED_TRACE(fault.name);
    cluster.worker(5).SpoilSrus([&](const auto&) { return fault.fault; });
    const auto result = ReadBlock(cluster, 1);
    EXPECT_THAT(result.status, HasCode(fault.status));
    EXPECT_THAT(std::string(result.status.message()), HasSubstr("SRU 13 of file \"data\": worker 5"));
    EXPECT_THAT(std::string(result.status.message()), HasSubstr(cluster.worker(5).address()));
    EXPECT_TRUE(cluster.AwaitIdle());
    cluster.worker(5).SpoilSrus(nullptr);
    const auto next = ReadBlock(cluster, 1);
    EXPECT_TRUE(next.status.ok()) << next.status;
    EXPECT_TRUE(next.data == cluster.SourceBlock(1));
  }
}

TEST(SegmentReadTest, AReplicaTakesTheFaultyWorkersPlace) {
  TestCluster cluster(EightWorkers(2));
  for (const FaultCase& fault : EveryFault()) {
    SCOPED_TRACE(fault.name);
    cluster.MakeReader();  // a new reader, which has no record of the bad worker yet
    cluster.worker(5).SpoilSrus([&](const auto&) { return fault.fault; });
    const auto result = ReadBlock(cluster, 1);
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_TRUE(result.data == cluster.SourceBlock(1));
  }
  EXPECT_EQ(cluster.Metric("sluice_call_retries_total"), EveryFault().size());
  EXPECT_EQ(cluster.Metric("sluice_goodput_bytes_total", "replica"), EveryFault().size() * 4096);
}

TEST(SegmentReadTest, WithPartialAFaultIsAGapThatNamesItsReason) {
  TestCluster cluster(EightWorkers());
  for (const FaultCase& fault : EveryFault()) {
    SCOPED_TRACE(fault.name);
    cluster.worker(5).SpoilSrus([&](const auto&) { return fault.fault; });
    const auto result = ReadBlock(cluster, 0, /*allow_partial=*/true);
    EXPECT_TRUE(result.status.ok()) << result.status;
    ASSERT_THAT(result.missing, SizeIs(1));
    EXPECT_EQ(result.missing[0].offset, 5u * 4096);
    EXPECT_EQ(result.missing[0].length, 4096u);
    EXPECT_THAT(result.missing[0].reason, HasSubstr("worker 5"));
    EXPECT_EQ(result.summary.bytes_read, 7u * 4096);
    EXPECT_EQ(result.summary.Coverage(), 7.0 / 8);
  }
}

TEST(SegmentReadTest, GapsAtTheBeginningInTheMiddleAndAtTheEnd) {
  for (const std::vector<size_t>& down : std::vector<std::vector<size_t>>{
           {0}, {7}, {3}, {0, 1}, {6, 7}, {0, 3, 4, 7}, {0, 2, 4, 6}, {0, 1, 2, 3, 4, 5, 6, 7}}) {
    TestCluster cluster(EightWorkers());
    std::string expected = cluster.SourceBlock(2);
    for (const size_t worker : down) {
      cluster.worker(worker).SpoilSrus([](const auto&) { return Error(absl::StatusCode::kInternal); });
      expected.replace(worker * 4096, 4096, std::string(4096, '\0'));
    }
    const auto result = ReadBlock(cluster, 2, /*allow_partial=*/true);
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_TRUE(result.data == expected);
    EXPECT_EQ(result.summary.bytes_read, (8 - down.size()) * 4096);
    EXPECT_EQ(result.summary.bytes_wanted, 8u * 4096);
    uint64_t missing_bytes = 0;
    for (const MissingBytes& gap : result.missing) missing_bytes += gap.length;
    EXPECT_EQ(missing_bytes, down.size() * 4096);
  }
}

TEST(SegmentReadTest, APassingFaultIsTriedAgainAtTheSameWorkerWhereThereIsNoReplica) {
  TestCluster cluster(EightWorkers());
  for (const Fault& fault : {Error(absl::StatusCode::kUnavailable), FlipByte(), OneByteLess(), Hang()}) {
    std::atomic<int> asked = 0;
    cluster.worker(2).SpoilSrus([&](const auto&) { return ++asked == 1 ? fault : Healthy(); });
    const auto result = ReadBlock(cluster, 0);
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_TRUE(result.data == cluster.SourceBlock(0));
    EXPECT_EQ(asked, 2);
  }
}

TEST(SegmentReadTest, AnErrorThatStaysIsNotAskedForTwiceWithoutAReplica) {
  TestCluster cluster(EightWorkers());
  std::atomic<int> asked = 0;
  cluster.worker(2).SpoilSrus([&](const auto&) { return ++asked, Error(absl::StatusCode::kNotFound); });
  EXPECT_THAT(ReadBlock(cluster, 0).status, HasCode(absl::StatusCode::kDataLoss));
  EXPECT_EQ(asked, 1);
}

TEST(SegmentReadTest, AttemptsGoRoundTheReplicas) {
  auto options = EightWorkers(3);
  options.reader.attempts = 7;
  TestCluster cluster(std::move(options));
  for (size_t worker : {2, 3, 4}) {
    cluster.worker(worker).SpoilSrus(
        [](const auto& request) { return request.offset() == 0 ? Error(absl::StatusCode::kInternal) : Healthy(); });
  }
  // SRU 2 has copies at 2, 3 and 4, and all of them fail.
  const auto result = ReadBlock(cluster, 0);
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("attempt 7"));
}

TEST(SegmentReadTest, GoodputIsCountedForTheWorkerThatTheBytesCameFrom) {
  // Both copies of SRU 5 fail at first; the third attempt reads it from the primary again.
  TestCluster again({.workers = 2, .file_bytes = 2 * 4096, .replicas = 2, .reader = {.attempts = 3}});
  std::atomic<int> asked = 0;
  again.SpoilSrus([&](const v1::ReadSruRequest& request) {
    const bool of_first_sru = (request.worker() + 2 - request.replica()) % 2 == 0;
    return of_first_sru && ++asked <= 2 ? FlipByte() : Healthy();
  });
  const auto block = again.Read(0);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_EQ(again.Metric("sluice_goodput_bytes_total", "primary"), 2 * 4096);
  EXPECT_EQ(again.Metric("sluice_goodput_bytes_total", "replica"), 0);
}

TEST(SegmentReadTest, TheBlockTimeoutCoversWaitingAndRetries) {
  auto options = EightWorkers();
  options.reader = {.sru_timeout = absl::Seconds(60), .block_timeout = absl::Milliseconds(300), .attempts = 100};
  // With grants, the requests would leave, and the responses would wait.
  options.schedule.policy = SchedulePolicy::kRolling;
  options.schedule.budget_bytes = 1500;  // one packet at a time
  TestCluster cluster(std::move(options));
  cluster.worker(0).SpoilSrus([](const auto&) { return Hang(); });
  const auto result = ReadBlock(cluster, 0);
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(cluster.worker(7).counts().requests, 0) << "it waited behind, and was not sent";
  EXPECT_TRUE(cluster.AwaitIdle());
  EXPECT_EQ(cluster.Metric("sluice_blocks_total", "deadline"), 1);
}

TEST(SegmentReadTest, StripesOfTheWrongSizeOnDiskAreDataLossAndAReplicaHelps) {
  for (const uintmax_t bytes : {0, 100, 4096}) {
    TestCluster cluster(EightWorkers(2));
    std::filesystem::resize_file(cluster.root() + "/" + WorkerFolderName(3) + "/data/stripe-0", bytes);
    for (uint64_t block = 0; block < 3; ++block) {
      const auto result = ReadBlock(cluster, block);
      EXPECT_TRUE(result.status.ok()) << result.status;
      EXPECT_TRUE(result.data == cluster.SourceBlock(block));
    }
    std::filesystem::remove(cluster.root() + "/" + WorkerFolderName(4) + "/data/stripe-1");
    EXPECT_THAT(ReadBlock(cluster, 2).status, HasCode(absl::StatusCode::kDataLoss));
  }
}
TEST(SegmentReadTest, AWorkerThatHasFailedIsNotTheFirstThatIsAskedAgain) {
  TestCluster cluster(EightWorkers(2));
  std::atomic<int> asked = 0;
  cluster.worker(5).SpoilSrus([&](const auto&) { return ++asked, Error(absl::StatusCode::kUnavailable); });
  ASSERT_TRUE(ReadBlock(cluster, 0).status.ok());
  ASSERT_GT(asked, 0);
  const int before = asked;
  ASSERT_TRUE(ReadBlock(cluster, 0).status.ok());
  EXPECT_EQ(asked, before);
}

TEST(SegmentReadTest, ASlowWorkerIsHedged) {
  auto options = EightWorkers(2);
  options.reader.sru_timeout = testing::kPatience;
  options.reader.hedge_after = absl::Milliseconds(50);
  options.reader.hedge_ratio = 1;
  TestCluster cluster(std::move(options));
  cluster.worker(5).SpoilSrus([](const auto&) { return Hang(); });
  const auto result = ReadBlock(cluster, 0);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(result.data == cluster.SourceBlock(0));
  EXPECT_GE(cluster.Metric("sluice_hedges_total", "won"), 1);
  EXPECT_TRUE(cluster.worker(5).Await([](const auto& counts) { return counts.open == 0; })) << "the rival is cancelled";
}

TEST(SegmentReadTest, WithoutHedgesASlowWorkerIsWaitedFor) {
  TestCluster cluster(EightWorkers(2));
  cluster.worker(5).SpoilSrus([](const auto&) { return Slow(absl::Milliseconds(200)); });
  ASSERT_TRUE(ReadBlock(cluster, 0).status.ok());
  EXPECT_EQ(cluster.Metric("sluice_hedges_total", "won") + cluster.Metric("sluice_hedges_total", "lost"), 0);
}

class StripedAnewTest : public ::testing::Test {
 protected:
  StripedAnewTest() : cluster_(EightWorkers()) {}

  void StripeAnew(const std::string& source) {
    const auto manifest = testing::StripeBytes(
        source, {.root = cluster_.root(), .file = "data", .workers = 8, .sru_bytes = 4096, .replace = true});
    ASSERT_TRUE(manifest.ok()) << manifest.status();
  }
  void CountManifests() {
    for (size_t i = 0; i < cluster_.size(); ++i) {
      cluster_.worker(i).SpoilManifests([this](const auto&) { return ++manifests_, Healthy(); });
    }
  }

  TestCluster cluster_;
  const std::string other_ = testing::SourceBytes(8 * 4096);
  std::atomic<int> manifests_ = 0;
};

TEST_F(StripedAnewTest, TheReadThatFindsItOutBeginsAgainByTheNewManifest) {
  ASSERT_TRUE(ReadBlock(cluster_, 0).status.ok());
  StripeAnew(other_);
  const auto result = ReadBlock(cluster_, 0);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.header.file_bytes, other_.size());
  EXPECT_TRUE(result.data == other_);
  StripeAnew(cluster_.source());
  const auto block = cluster_.Read(0);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_TRUE(block->data == cluster_.SourceBlock(0));
}

TEST_F(StripedAnewTest, SoDoesAReadThatMayHaveGaps) {
  ASSERT_TRUE(ReadBlock(cluster_, 0).status.ok());
  StripeAnew(other_);
  const auto result = ReadBlock(cluster_, 0, /*allow_partial=*/true);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_THAT(result.missing, SizeIs(0));
  EXPECT_TRUE(result.data == other_);
}

TEST_F(StripedAnewTest, AFileThatIsBadByItsManifestOfNowIsReadOnceAndReported) {
  ASSERT_TRUE(ReadBlock(cluster_, 0).status.ok());
  CountManifests();
  std::atomic<int> asked = 0;
  cluster_.worker(3).SpoilSrus([&](const auto&) { return ++asked, Error(absl::StatusCode::kNotFound); });
  EXPECT_THAT(ReadBlock(cluster_, 0).status, HasCode(absl::StatusCode::kDataLoss));
  EXPECT_EQ(manifests_, 1);
  EXPECT_EQ(asked, 1);
}

TEST_F(StripedAnewTest, AFileThatIsGoneIsNotFound) {
  ASSERT_TRUE(ReadBlock(cluster_, 0).status.ok());
  for (size_t i = 0; i < cluster_.size(); ++i) {
    cluster_.worker(i).SpoilManifests([](const auto&) { return Error(absl::StatusCode::kNotFound); });
    cluster_.worker(i).SpoilSrus([](const auto&) { return Error(absl::StatusCode::kNotFound); });
  }
  EXPECT_THAT(ReadBlock(cluster_, 0).status, HasCode(absl::StatusCode::kNotFound));
}

TEST(SegmentReadTest, AWorkerThatDiesInTheMiddleOfABlockIsUnavailable) {
  TestCluster cluster(EightWorkers());
  cluster.worker(6).SpoilSrus([](const auto&) { return Hang(); });
  const auto stream = cluster.reader().Open("data", 0);
  testing::Notification ended;
  absl::Status status;
  std::thread reading([&] {
    status = Drain(*stream).status;
    ended.Notify();
  });
  ASSERT_TRUE(cluster.worker(6).Await([](const auto& counts) { return counts.open == 1; }));
  cluster.worker(6).Stop();
  EXPECT_TRUE(ended.Await());
  reading.join();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  cluster.worker(6).SpoilSrus(nullptr);
  cluster.worker(6).Start();
  EXPECT_TRUE(testing::Eventually([&] { return ReadBlock(cluster, 0).status.ok(); })) << "back after the back-off";
}

TEST(SegmentReadTest, AWorkerThatDiesInTheMiddleOfABlockIsReplaced) {
  TestCluster cluster(EightWorkers(2));
  cluster.worker(6).SpoilSrus([](const auto&) { return Hang(); });
  const auto stream = cluster.reader().Open("data", std::nullopt);
  ReadResult result;
  std::thread reading([&] { result = Drain(*stream); });
  EXPECT_TRUE(cluster.worker(6).Await([](const auto& counts) { return counts.open > 0; }));
  cluster.worker(6).Stop();
  reading.join();
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(result.data == cluster.source());
}

}  // namespace
}  // namespace sluice
