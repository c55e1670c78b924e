#include "lib/storage/blocks/manifest_fetch.h"

#include <atomic>
#include <filesystem>
#include <limits>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/storage/stripe/stripe_name.h"
#include "tests/notification.h"
#include "tests/unit/storage/blocks/test_cluster.h"
#include "tests/watched.h"

namespace sluice {
namespace {

using testing::Error;
using testing::Fault;
using testing::FlipByte;
using testing::Garbage;
using testing::Hang;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::Healthy;
using testing::kPatience;
using testing::OneByteLess;
using testing::OneByteMore;
using testing::TestCluster;
using testing::TestWorker;

class ManifestFetchTest : public ::testing::Test {
 protected:
  static TestCluster::Options Small() { return {}; }
  // The manifest has 4 bytes for each SRU, 1.2 MB in total, which exceeds one response.
  static TestCluster::Options Large() {
    return {.file_bytes = 300'000, .sru_bytes = 1, .reader = {.segment_bytes = 1000}};
  }

  static std::string ManifestPath(const TestCluster& cluster, uint32_t worker) {
    return cluster.root() + "/" + WorkerFolderName(worker) + "/data/manifest";
  }

  static void ExpectReads(TestCluster& cluster) {
    const auto block = cluster.Read(1);
    ASSERT_TRUE(block.ok()) << block.status();
    EXPECT_TRUE(block->data == cluster.SourceBlock(1));
  }

  static void SpoilManifests(TestCluster& cluster, const TestWorker::ManifestFault& fault) {
    for (size_t i = 0; i < cluster.size(); ++i) cluster.worker(i).SpoilManifests(fault);
  }

  static absl::Status Error0(TestCluster& cluster) { return cluster.Read(0).status(); }
};

TEST_F(ManifestFetchTest, ASmallManifestTakesOneRequest) {
  TestCluster cluster(Small());
  std::atomic<int> requests = 0;
  SpoilManifests(cluster, [&](const auto&) { return ++requests, Healthy(); });
  ExpectReads(cluster);
  ExpectReads(cluster);
  EXPECT_EQ(requests, 1);
}

TEST_F(ManifestFetchTest, ALargeManifestComesInRanges) {
  TestCluster cluster(Large());
  std::atomic<int> requests = 0;
  std::atomic<uint32_t> longest = 0;
  SpoilManifests(cluster, [&](const auto& request) {
    ++requests;
    longest = std::max(longest.load(), request.length());
    return Healthy();
  });
  ExpectReads(cluster);
  EXPECT_EQ(requests, 2);
  EXPECT_LE(longest, 1u << 20);
}

TEST_F(ManifestFetchTest, AsksTheNextWorkerWhenOneHasAFaultyAnswer) {
  const auto faults = std::vector<Fault>{Error(absl::StatusCode::kNotFound),
                                         Error(absl::StatusCode::kUnavailable),
                                         Error(absl::StatusCode::kFailedPrecondition),
                                         Error(absl::StatusCode::kCancelled),
                                         Error(absl::StatusCode::kInvalidArgument),
                                         Error(absl::StatusCode::kResourceExhausted),
                                         Error(absl::StatusCode::kInternal),
                                         Garbage(),
                                         FlipByte(),
                                         OneByteMore(),
                                         OneByteLess(),
                                         {.manifest_bytes = 0},
                                         {.manifest_bytes = 1},
                                         {.manifest_bytes = 100000},
                                         {.manifest_bytes = std::numeric_limits<uint64_t>::max()}};
  for (const auto& options : {Small(), Large()}) {
    TestCluster cluster(options);
    for (size_t i = 0; i < faults.size(); ++i) {
      SCOPED_TRACE(i);
      cluster.MakeReader();
      for (size_t worker : {0, 1}) cluster.worker(worker).SpoilManifests([&](const auto&) { return faults[i]; });
      ExpectReads(cluster);
    }
  }
}

TEST_F(ManifestFetchTest, AsksTheNextWorkerWhenOneFailsInALaterRange) {
  TestCluster cluster(Large());
  const auto later = [](Fault fault) {
    return [fault](const v1::ReadManifestRequest& request) { return request.offset() > 0 ? fault : Healthy(); };
  };
  for (const Fault& fault : {Error(absl::StatusCode::kOutOfRange), OneByteLess(), OneByteMore(), FlipByte(), Garbage(),
                             Fault{.manifest_bytes = 50000}, Fault{.manifest_bytes = 0}}) {
    cluster.MakeReader();
    cluster.manifest_worker().SpoilManifests(later(fault));
    ExpectReads(cluster);
  }
}

// The SRUs of the dead workers have replicas at other workers.
TEST_F(ManifestFetchTest, AFileIsReadThoughTheFirstThreeWorkersAreDead) {
  TestCluster cluster({.workers = 6, .replicas = 4, .reader = {.attempts = 4}});
  for (const size_t worker : {0, 1, 2}) cluster.worker(worker).Stop();
  ExpectReads(cluster);
}

TEST_F(ManifestFetchTest, AFileIsReadThoughOneWorkerAloneHasItsManifest) {
  for (size_t left = 0; left < 8; ++left) {
    SCOPED_TRACE(left);
    TestCluster cluster({.workers = 8});
    SpoilManifests(cluster, [](const auto&) { return Error(absl::StatusCode::kUnavailable); });
    cluster.worker(left).SpoilManifests(nullptr);
    ExpectReads(cluster);
  }
}

TEST_F(ManifestFetchTest, AHangingWorkerCostsItsTimeoutAndNoMore) {
  TestCluster cluster({.reader = {.sru_timeout = absl::Seconds(1)}});
  TestWorker& first = cluster.manifest_worker();
  first.SpoilManifests([](const auto&) { return Hang(); });
  ExpectReads(cluster);
  EXPECT_EQ(first.counts().requests, 2) << "the manifest, and the SRU of the block";
}

TEST_F(ManifestFetchTest, AFileThatNobodyHasIsNotFoundAndNamed) {
  TestCluster cluster(Small());
  const absl::Status status = cluster.reader().Read("other", 0).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"other\""));
}

TEST_F(ManifestFetchTest, AFileThatNobodyHasIsAskedOfAFewWorkers) {
  TestCluster cluster({.workers = 32});
  std::atomic<int> requests = 0;
  SpoilManifests(cluster, [&](const auto&) { return ++requests, Error(absl::StatusCode::kNotFound); });
  EXPECT_THAT(Error0(cluster), HasCode(absl::StatusCode::kNotFound));
  EXPECT_LE(requests, 10);
}

TEST_F(ManifestFetchTest, WithoutAGoodManifestTheErrorSaysWhyAndWhichWorker) {
  TestCluster cluster(Small());
  SpoilManifests(cluster, [](const auto&) { return FlipByte(); });
  EXPECT_THAT(Error0(cluster), HasCode(absl::StatusCode::kDataLoss));
  EXPECT_THAT(std::string(Error0(cluster).message()), HasSubstr(cluster.manifest_worker().address()));
  SpoilManifests(cluster, [](const auto&) { return Error(absl::StatusCode::kFailedPrecondition); });
  EXPECT_THAT(Error0(cluster), HasCode(absl::StatusCode::kUnavailable));
  SpoilManifests(cluster, [](const auto&) { return Error(absl::StatusCode::kCancelled); });
  EXPECT_THAT(Error0(cluster), HasCode(absl::StatusCode::kUnavailable));
  SpoilManifests(cluster, [](const auto&) { return Fault{.manifest_bytes = uint64_t{1} << 40}; });
  EXPECT_THAT(Error0(cluster), HasCode(absl::StatusCode::kDataLoss));
  SpoilManifests(cluster, nullptr);
  ExpectReads(cluster);
}

TEST_F(ManifestFetchTest, ABadManifestSaysMoreThanTheWorkersThatHaveNone) {
  TestCluster cluster(Small());
  SpoilManifests(cluster, [](const auto&) { return Error(absl::StatusCode::kNotFound); });
  cluster.worker(0).SpoilManifests([](const auto&) { return FlipByte(); });
  const absl::Status status = Error0(cluster);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker 0 "));
}

TEST_F(ManifestFetchTest, ATruncatedOrEmptyManifestOnDiskIsDataLossUnlessAnotherWorkerHasIt) {
  for (const uintmax_t bytes : {0, 1, 24, 50}) {
    TestCluster cluster(Small());
    for (uint32_t worker : {0, 1, 2}) std::filesystem::resize_file(ManifestPath(cluster, worker), bytes);
    ExpectReads(cluster);
    cluster.MakeReader();
    std::filesystem::resize_file(ManifestPath(cluster, 3), bytes);
    EXPECT_THAT(Error0(cluster), HasCode(absl::StatusCode::kDataLoss)) << bytes;
  }
}

TEST_F(ManifestFetchTest, AFileOfMoreWorkersThanTheReaderHasIsFailedPreconditionWithBothNumbers) {
  TestCluster cluster({.workers = 4, .listed_workers = 3});
  EXPECT_THAT(Error0(cluster), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(Error0(cluster).message()), HasSubstr("over 4 workers; this reader has 3"));
}

TEST_F(ManifestFetchTest, AFileOfFewerWorkersThanTheReaderHasIsRead) {
  TestCluster cluster({.workers = 3, .listed_workers = 5});
  ExpectReads(cluster);
}

TEST_F(ManifestFetchTest, ADeadlineEndsItWithoutAskingTheOthers) {
  TestCluster cluster(Small());
  SpoilManifests(cluster, [](const auto&) { return Hang(); });
  const auto block = cluster.Read(0, {.timeout = absl::Milliseconds(200)});
  EXPECT_THAT(block.status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(cluster.Requests(), 1);
}

TEST_F(ManifestFetchTest, CancellingTheReadCancelsItAtTheWorker) {
  TestCluster cluster(Small());
  SpoilManifests(cluster, [](const auto&) { return Hang(); });
  const auto stream = cluster.reader().Open("data", 0);
  stream->Next(
      [](absl::StatusOr<ReadPart> part) { EXPECT_THAT(part.status(), HasCode(absl::StatusCode::kCancelled)); });
  TestWorker& first = cluster.manifest_worker();
  ASSERT_TRUE(first.Await([](const auto& counts) { return counts.open == 1; }));
  stream->Cancel();
  EXPECT_TRUE(first.Await([](const auto& counts) { return counts.cancelled == 1; }));
  EXPECT_TRUE(cluster.AwaitIdle());
  EXPECT_EQ(cluster.Requests(), 1) << "no other worker is asked for what nobody wants";
}

TEST_F(ManifestFetchTest, AWorkerThatHangsCostsOneReadAndNotEveryOne) {
  TestCluster cluster({.replicas = 2, .reader = {.sru_timeout = absl::Seconds(1)}});
  std::atomic<int> asked = 0;
  TestWorker& first = cluster.manifest_worker();
  first.SpoilManifests([&](const auto&) { return ++asked, Hang(); });
  first.SpoilSrus([](const auto&) { return Hang(); });
  ExpectReads(cluster);
  cluster.reader().ForgetLayout("data");
  ExpectReads(cluster);
  EXPECT_EQ(asked, 1);
}

TEST_F(ManifestFetchTest, ReadsThatWantItAtTheSameTimeShareOneFetch) {
  TestCluster cluster(Small());
  std::atomic<int> asked = 0;
  testing::Notification go_on;
  SpoilManifests(cluster, [&](const auto&) {
    ++asked;
    EXPECT_TRUE(go_on.Await());
    return Healthy();
  });
  constexpr uint64_t kReads = 5;
  testing::Watched<uint64_t> here;
  std::vector<std::shared_ptr<ReadStream>> streams;
  for (uint64_t block = 0; block < kReads; ++block) {
    streams.push_back(cluster.reader().Open("data", block));
    streams.back()->Next([&](const absl::StatusOr<ReadPart>& part) {
      EXPECT_TRUE(part.ok()) << part.status();
      here.Change([](uint64_t& reads) { ++reads; });
    });
  }
  cluster.link().Await([](LinkLoop&) {});  // all reads have sent their request
  go_on.Notify();
  EXPECT_TRUE(here.Await([](uint64_t reads) { return reads == kReads; }));
  EXPECT_EQ(asked, 1);
}

TEST_F(ManifestFetchTest, OneReadThatGivesUpTakesNothingFromTheOthers) {
  TestCluster cluster(Small());
  testing::Notification go_on;
  SpoilManifests(cluster, [&](const auto&) {
    EXPECT_TRUE(go_on.Await());
    return Healthy();
  });
  const auto patient = cluster.reader().Open("data", 0);
  testing::Notification here;
  patient->Next([&](const absl::StatusOr<ReadPart>& part) {
    EXPECT_TRUE(part.ok()) << part.status();
    here.Notify();
  });
  EXPECT_THAT(cluster.Read(0, {.timeout = absl::Milliseconds(100)}).status(),
              HasCode(absl::StatusCode::kDeadlineExceeded));
  const auto cancelled = cluster.reader().Open("data", 0);
  cancelled->Next([](const absl::StatusOr<ReadPart>&) {});
  cancelled->Cancel();
  go_on.Notify();
  EXPECT_TRUE(here.Await());
}

}  // namespace
}  // namespace sluice
