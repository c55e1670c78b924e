#include "sluice/block_reader.h"

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/storage/stripe/manifest.h"
#include "tests/unit/net/silent_listener.h"
#include "tests/unit/storage/blocks/test_cluster.h"

namespace sluice {
namespace {

using testing::Drain;
using testing::Error;
using testing::Hang;
using testing::HasCode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SilentListener;
using ::testing::SizeIs;
using testing::Slow;
using testing::TestCluster;

TEST(BlockReaderValidateTest, NamesTheOptionThatIsOutsideOfItsBound) {
  const auto expect_refused = [](BlockReader::Options options, const std::string& field) {
    if (options.workers.empty()) options.workers = {"w:1"};
    const absl::Status status = BlockReader::Validate(options);
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  };
  EXPECT_TRUE(BlockReader::Validate({.workers = {"w:1"}}).ok());
  expect_refused({.sru_timeout = absl::ZeroDuration()}, "sru_timeout is 0");
  expect_refused({.block_timeout = -absl::Seconds(1)}, "block_timeout is -1s");
  expect_refused({.connect_timeout = absl::ZeroDuration()}, "connect_timeout is 0");
  expect_refused({.attempts = 0}, "attempts is 0");
  expect_refused({.attempts = 101}, "attempts is 101");
  expect_refused({.segment_bytes = 0}, "segment_bytes is 0");
  expect_refused({.segment_bytes = (int64_t{1} << 30) + 1}, "segment_bytes is 1073741825");
  expect_refused({.workers = {"no-port"}}, "no-port");
  expect_refused({.hedge_after = absl::ZeroDuration()}, "hedge_after: 0");
  expect_refused({.hedge_after_quantile = 1.0}, "hedge_after_quantile: 1");
  expect_refused({.hedge_after = absl::Seconds(1), .hedge_after_quantile = 0.9}, "both set");
  expect_refused({.hedge_ratio = 1.5}, "hedge_ratio: 1.5");
}

TEST(BlockReaderValidateTest, TakesRangesAndRefusesWhatHasToBeLookedUp) {
  EXPECT_TRUE(BlockReader::Validate({.workers = {"w-{0..3}:1", "x:1"}}).ok());
  for (const std::string entry : {"w-{0..}:1", "dns+w:1"}) {
    const absl::Status status = BlockReader::Validate({.workers = {entry}});
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"" + entry + "\" has to be looked up"));
  }
}

TEST(BlockReaderValidateTest, AFileOfTlsThatIsNotThereIsNamed) {
  const absl::Status status =
      BlockReader::Validate({.workers = {"w:1"}, .tls = TlsOptions{.ca_file = "/no/such/file.pem"}});
  EXPECT_THAT(status, HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/file.pem"));
}

TEST(BlockReaderValidateTest, CreateRefusesNoLink) {
  EXPECT_THAT(BlockReader::Create(nullptr, {.workers = {"w:1"}}).status(), HasCode(absl::StatusCode::kInvalidArgument));
}

struct Shape {
  const char* name;
  TestCluster::Options options;
};

class BlockReaderShapeTest : public ::testing::TestWithParam<Shape> {};

// Reads every block separately, and then the whole file.
TEST_P(BlockReaderShapeTest, ReadsEveryByteWithEveryPolicy) {
  for (const SchedulePolicy policy :
       {SchedulePolicy::kGrants, SchedulePolicy::kRolling, SchedulePolicy::kBatches, SchedulePolicy::kUnscheduled}) {
    auto options = GetParam().options;
    options.schedule.policy = policy;
    options.inline_callbacks = policy == SchedulePolicy::kRolling;
    TestCluster cluster(std::move(options));
    const size_t blocks = (cluster.source().size() + cluster.block_bytes() - 1) / cluster.block_bytes();
    for (uint64_t block = 0; block < blocks; ++block) {
      const auto read = cluster.Read(block);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_TRUE(read->data == cluster.SourceBlock(block));
      EXPECT_EQ(read->summary.Coverage(), 1);
      EXPECT_THAT(read->missing, IsEmpty());
    }
    EXPECT_THAT(cluster.Read(blocks).status(), HasCode(absl::StatusCode::kOutOfRange));
    EXPECT_THAT(cluster.reader().Read("data", 0, {.metadata = {{"grpc-x", "reserved"}}}).status(),
                HasCode(absl::StatusCode::kInvalidArgument));
    const auto whole = Drain(*cluster.reader().Open("data", std::nullopt));
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    EXPECT_TRUE(whole.data == cluster.source());
    EXPECT_EQ(cluster.Metric("sluice_goodput_bytes_total", "primary"), 2 * cluster.source().size());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, BlockReaderShapeTest,
    ::testing::Values(Shape{"OneWorker", {.workers = 1, .file_bytes = 10000, .sru_bytes = 1000}},
                      Shape{"EmptyFile", {.file_bytes = 0}}, Shape{"OneByte", {.file_bytes = 1}},
                      Shape{"OneByteSrus", {.workers = 3, .file_bytes = 50, .sru_bytes = 1}},
                      Shape{"FullBlocks", {.workers = 4, .file_bytes = 4 * 4096 * 3}},
                      Shape{"LastBlockOfOneShortSru", {.workers = 4, .file_bytes = 4 * 4096 * 2 + 5}},
                      Shape{"LastSruShort", {.workers = 4, .file_bytes = 4 * 4096 * 2 - 5}},
                      Shape{"SruOfSeveralRanges", {.workers = 3, .file_bytes = 300001, .sru_bytes = 60000}},
                      Shape{"SruOfOneMebibyte", {.workers = 2, .file_bytes = (3 << 20) + 1, .sru_bytes = 1 << 20}},
                      Shape{"SegmentOfOneSru", {.workers = 4, .file_bytes = 100000, .reader = {.segment_bytes = 1}}},
                      Shape{"BudgetOfOneByte",
                            {.workers = 3, .file_bytes = 20000, .sru_bytes = 3000, .schedule = {.budget_bytes = 1}}},
                      Shape{"Replicas", {.workers = 4, .file_bytes = 100000, .replicas = 4}}),
    [](const auto& info) { return info.param.name; });

TEST(BlockReaderTest, AnUnreachableWorkerIsUnavailableAtOnceAndNamed) {
  TestCluster cluster({.workers = 2});
  SilentListener gone;
  gone.Close();
  auto options = cluster.reader_options();
  options.workers[1] = gone.address();
  const auto reader = BlockReader::Create(cluster.shared_link(), options);
  ASSERT_TRUE(reader.ok());
  const auto unconnected = (*reader)->Connect();
  ASSERT_THAT(unconnected, SizeIs(1));
  const auto& [address, why] = unconnected[0];
  EXPECT_EQ(address, gone.address());
  EXPECT_THAT(why, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(why.message()), HasSubstr("refused"));
  const auto block = (*reader)->Read("data", 0);
  EXPECT_THAT(block.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(block.status().message()), HasSubstr(gone.address()));
}

TEST(BlockReaderTest, AHostNameThatDoesNotResolveIsUnavailableAndNamed) {
  TestCluster cluster({.workers = 2});
  auto options = cluster.reader_options();
  options.workers[1] = "no-such-host.invalid:7000";
  options.sru_timeout = absl::Seconds(5);
  const auto reader = BlockReader::Create(cluster.shared_link(), options);
  ASSERT_TRUE(reader.ok());
  const auto block = (*reader)->Read("data", 0);
  EXPECT_THAT(block.status(),
              ::testing::AnyOf(HasCode(absl::StatusCode::kUnavailable), HasCode(absl::StatusCode::kDeadlineExceeded)));
  EXPECT_THAT(std::string(block.status().message()), HasSubstr("no-such-host.invalid:7000"));
}

TEST(BlockReaderTest, AWorkerThatNeverShakesHandsCostsTheSruTimeout) {
  TestCluster cluster({.workers = 2, .replicas = 2});
  SilentListener silent;
  auto options = cluster.reader_options();
  options.workers[0] = silent.address();
  options.sru_timeout = absl::Milliseconds(300);
  const auto reader = BlockReader::Create(cluster.shared_link(), options);
  ASSERT_TRUE(reader.ok());
  const auto block = (*reader)->Read("data", 0);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_TRUE(block->data == cluster.SourceBlock(0));
}

TEST(BlockReaderTest, TwoBlocksOfOneFileAreReadBySeveralClientsAtOnce) {
  TestCluster cluster({.workers = 8, .file_bytes = 200000});
  std::vector<std::thread> clients;
  for (uint64_t client = 0; client < 6; ++client) {
    clients.emplace_back([&, client] {
      for (int i = 0; i < 10; ++i) {
        const uint64_t block = (client + static_cast<uint64_t>(i)) % 2;
        const auto read = cluster.Read(block);
        ASSERT_TRUE(read.ok()) << read.status();
        EXPECT_TRUE(read->data == cluster.SourceBlock(block));
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST(BlockReaderTest, ReadersOfOneLinkDoNotDisturbEachOther) {
  TestCluster cluster({.workers = 4, .reader = {.attempts = 1}});
  auto broken_options = cluster.reader_options();
  SilentListener gone;
  gone.Close();
  for (std::string& worker : broken_options.workers) worker = gone.address();
  const auto broken = BlockReader::Create(cluster.shared_link(), broken_options);
  ASSERT_TRUE(broken.ok());
  std::thread failing([&] {
    for (int i = 0; i < 20; ++i) {
      EXPECT_THAT((*broken)->Read("data", 0).status(), HasCode(absl::StatusCode::kUnavailable));
    }
  });
  for (uint64_t i = 0; i < 20; ++i) {
    const auto block = cluster.Read(i % 6);
    EXPECT_TRUE(block.ok()) << block.status();
  }
  failing.join();
}

TEST(BlockReaderTest, ASuccessorReadsOverTheSameConnections) {
  TestCluster cluster({});
  ASSERT_TRUE(cluster.Read(0).ok());
  auto options = cluster.reader_options();
  options.attempts = 1;
  auto successor = cluster.reader().Successor(options);
  ASSERT_TRUE(successor.ok()) << successor.status();
  cluster.DestroyReader();
  const auto block = (*successor)->Read("data", 1);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_TRUE(block->data == cluster.SourceBlock(1));
  EXPECT_EQ(cluster.Metric("sluice_worker_reconnect_seconds"), 0);
}

// The manifest claims far more bytes than the stripes have.
TEST(BlockReaderTest, ReadRefusesABlockThatIsTooLargeForMemory) {
  constexpr uint32_t kWorkers = 17;
  TestCluster cluster({.workers = 2, .listed_workers = kWorkers});
  v1::Manifest claims;
  claims.set_sru_bytes(kMaxSruBytes);
  claims.set_workers(kWorkers);
  claims.set_replicas(1);
  claims.set_file_bytes(uint64_t{kMaxSruBytes} * kWorkers);
  claims.mutable_sru_crc32c()->Resize(kWorkers, 0);
  ASSERT_GT(claims.file_bytes(), BlockReader::kMaxReadBytes);
  const std::string stored = EncodeManifest(claims);
  for (size_t i = 0; i < cluster.size(); ++i) {
    cluster.worker(i).SpoilManifests([stored](const auto&) {
      return testing::Fault{.edit = [stored](std::string& data) { data = stored; }, .manifest_bytes = stored.size()};
    });
    cluster.worker(i).SpoilSrus([](const auto&) { return Hang(); });
  }
  const auto block = cluster.Read(0);
  EXPECT_THAT(block.status(), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(block.status().message()), HasSubstr("1140850688 bytes"));
}

TEST(BlockReaderAdmissionTest, AReadThatIsNotAdmittedRequestsNoSru) {
  TestCluster cluster({});
  const auto read = [&](const absl::Status& admitted) {
    ReadHeader shown;
    ReadOptions options;
    options.admit = [&](const ReadHeader& header) {
      shown = header;
      return admitted;
    };
    const testing::ReadResult result = Drain(*cluster.reader().Open("data", std::nullopt, options));
    EXPECT_TRUE(cluster.AwaitIdle());
    EXPECT_EQ(result.status, admitted);
    EXPECT_EQ(shown.length, cluster.source().size());
  };
  read(absl::ResourceExhaustedError("no memory"));
  EXPECT_EQ(cluster.Requests(), 1) << "the manifest";
  read(absl::ResourceExhaustedError("no memory"));
  EXPECT_EQ(cluster.Requests(), 1);
  EXPECT_EQ(cluster.Metric("sluice_goodput_bytes_total", "primary"), 0);
  read(absl::OkStatus());
  EXPECT_GT(cluster.Requests(), 1);
}

TEST(BlockReaderDestructionTest, CancelsTheReadsUnderWayAndWaitsForThem) {
  TestCluster cluster({});
  cluster.SpoilSrus([](const auto&) { return Hang(); });
  const auto stream = cluster.reader().Open("data", std::nullopt);
  absl::Status status;
  std::thread reading([&] { status = Drain(*stream).status; });
  // A connection in progress has its own block, which outlives the reader.
  for (size_t i = 0; i < cluster.size(); ++i) {
    EXPECT_TRUE(cluster.worker(i).Await([](const auto& counts) { return counts.open > 0; }));
  }
  cluster.DestroyReader();
  EXPECT_EQ(cluster.link().State().blocks, 0);
  reading.join();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kCancelled));
  EXPECT_THAT(stream->Next().status(), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST(BlockReaderDestructionTest, AStreamMayOutliveItsReaderAndTheLink) {
  auto cluster = std::make_unique<TestCluster>(TestCluster::Options{.reader = {.segment_bytes = 4096}});
  const auto untouched = cluster->reader().Open("data", std::nullopt);
  const auto begun = cluster->reader().Open("data", std::nullopt);
  ASSERT_TRUE(begun->Next().ok());
  ASSERT_TRUE(begun->Next().ok());
  cluster->DestroyReader();
  cluster.reset();
  EXPECT_THAT(untouched->Next().status(), HasCode(absl::StatusCode::kCancelled));
  EXPECT_THAT(begun->Next().status(), HasCode(absl::StatusCode::kCancelled));
  begun->Cancel();
}

// Many segments make it likely that the reader is destroyed while a read is between two of them.
TEST(BlockReaderDestructionTest, RacesWithReadsInOtherThreads) {
  for (int round = 0; round < 40; ++round) {
    TestCluster cluster({.workers = 2, .file_bytes = 60000, .sru_bytes = 500, .reader = {.segment_bytes = 500}});
    std::vector<std::thread> readers;
    std::atomic<int> started = 0;
    for (int i = 0; i < 3; ++i) {
      readers.emplace_back([&, stream = cluster.reader().Open("data", std::nullopt)] {
        ++started;
        const auto result = Drain(*stream);
        if (!result.status.ok()) {
          EXPECT_THAT(result.status, HasCode(absl::StatusCode::kCancelled));
        }
      });
    }
    while (started < 3) std::this_thread::yield();
    EXPECT_TRUE(testing::Eventually([&] { return cluster.Requests() > round * 3; }));
    cluster.DestroyReader();
    for (std::thread& reader : readers) reader.join();
  }
}

}  // namespace
}  // namespace sluice
