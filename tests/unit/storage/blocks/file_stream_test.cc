#include "lib/storage/blocks/file_stream.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/notification.h"
#include "tests/unit/storage/blocks/test_cluster.h"

namespace sluice {
namespace {

using testing::Drain;
using testing::Hang;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::Healthy;
using testing::kPatience;
using testing::TestCluster;

// One call of Next, whose result can be awaited.
class PendingPart {
 public:
  explicit PendingPart(ReadStream& stream) {
    stream.Next([state = state_](absl::StatusOr<ReadPart> part) {
      state->part = std::move(part);
      state->done.Notify();
    });
  }

  bool Await() { return state_->done.Await(); }
  bool done() const { return state_->done.HasBeenNotified(); }
  const absl::StatusOr<ReadPart>& part() const { return state_->part; }

 private:
  struct State {
    testing::Notification done;
    absl::StatusOr<ReadPart> part = absl::UnknownError("not called");
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class FileStreamTest : public ::testing::Test {
 protected:
  // Data blocks of 16 KiB, each in two segments; 7 blocks, the last one shorter.
  FileStreamTest() : cluster_({.file_bytes = 100000, .reader = {.segment_bytes = 8192}}) {}

  std::shared_ptr<ReadStream> OpenAll() { return cluster_.reader().Open("data", std::nullopt); }

  TestCluster cluster_;
};

TEST_F(FileStreamTest, PartsComeInOrderWithinTheirBounds) {
  const auto result = Drain(*OpenAll());
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(result.data == cluster_.source());
  EXPECT_EQ(result.header.file_bytes, 100000u);
  EXPECT_EQ(result.header.offset, 0u);
  EXPECT_EQ(result.header.length, 100000u);
  EXPECT_EQ(result.header.block_bytes, 16384u);
  EXPECT_EQ(result.header.sru_bytes, 4096u);
  EXPECT_EQ(result.header.workers, 4u);
  EXPECT_EQ(result.summary.bytes_read, 100000u);
  EXPECT_EQ(result.summary.bytes_wanted, 100000u);
}

TEST(FileStreamChunkTest, ChunksAreOfBoundedSize) {
  TestCluster cluster({.file_bytes = 8 << 20, .sru_bytes = 1 << 20, .schedule = {.budget_bytes = 8 << 20}});
  const auto result = Drain(*cluster.reader().Open("data", std::nullopt));
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(result.data == cluster.source());
  for (const ReadChunk& chunk : result.chunks) {
    EXPECT_GT(chunk.data.size(), 0u);
    EXPECT_LE(chunk.data.size(), 1u << 20);
  }
}

TEST_F(FileStreamTest, ABlockIsReadAloneAtItsPlaceInTheFile) {
  for (const uint64_t block : {0, 3, 6}) {
    const auto result = Drain(*cluster_.reader().Open("data", block));
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.header.offset, block * 16384);
    EXPECT_TRUE(result.data == cluster_.SourceBlock(block));
  }
}

TEST_F(FileStreamTest, ABlockThatTheFileDoesNotHaveIsOutOfRange) {
  for (const uint64_t block : {uint64_t{7}, ~uint64_t{0}, ~uint64_t{0} / 16384 + 1}) {
    const absl::Status status = Drain(*cluster_.reader().Open("data", block)).status;
    EXPECT_THAT(status, HasCode(absl::StatusCode::kOutOfRange));
    EXPECT_THAT(std::string(status.message()), HasSubstr("it has 7 blocks"));
  }
}

TEST_F(FileStreamTest, ABadNameIsInvalidAndNoWorkerIsAsked) {
  for (const char* name : {"", ".", "..", "../data", "a/b", "/etc/passwd", "worker-0000/data", ".hidden", "a\nb", "a b",
                           "%2e%2e", "data\\..", "-rf"}) {
    EXPECT_THAT(Drain(*cluster_.reader().Open(name, std::nullopt)).status, HasCode(absl::StatusCode::kInvalidArgument))
        << name;
  }
  EXPECT_THAT(Drain(*cluster_.reader().Open(std::string("data\0", 5), std::nullopt)).status,
              HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Drain(*cluster_.reader().Open(std::string(201, 'x'), std::nullopt)).status,
              HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(cluster_.Requests(), 0);
}

TEST_F(FileStreamTest, AConsumerThatDoesNotReadHoldsTwoSegmentsBack) {
  const auto stream = OpenAll();
  ASSERT_TRUE(stream->Next().ok());  // the header
  ASSERT_TRUE(stream->Next().ok());  // the first chunk, a whole segment
  ASSERT_TRUE(cluster_.AwaitIdle());
  const int with_manifest = cluster_.Requests();
  EXPECT_LE(with_manifest, 1 + 3 * 2) << "the segment that was taken, and at most two more of two SRUs";
  const auto rest = [&] {
    std::string data;
    while (true) {
      auto part = stream->Next();
      EXPECT_TRUE(part.ok()) << part.status();
      if (!part.ok() || std::holds_alternative<ReadSummary>(*part)) return data;
      data += std::get<ReadChunk>(*part).data;
    }
  }();
  EXPECT_TRUE(rest == cluster_.source().substr(8192));
}

TEST_F(FileStreamTest, NothingIsAskedForBeforeTheFirstNext) {
  const auto stream = OpenAll();
  EXPECT_EQ(cluster_.link().State().submitted_calls, 0);
}

TEST_F(FileStreamTest, ASecondNextIsRefusedAndTheFirstIsAnswered) {
  testing::Notification go_on;
  cluster_.manifest_worker().SpoilManifests([&](const auto&) {
    EXPECT_TRUE(go_on.Await());
    return Healthy();
  });
  const auto stream = OpenAll();
  PendingPart first(*stream);
  PendingPart second(*stream);
  ASSERT_TRUE(second.Await());
  EXPECT_THAT(second.part().status(), HasCode(absl::StatusCode::kFailedPrecondition));
  go_on.Notify();
  ASSERT_TRUE(first.Await());
  EXPECT_TRUE(first.part().ok()) << first.part().status();
}

TEST_F(FileStreamTest, ANextAfterTheSummaryIsFailedPreconditionAlsoOnceCancelled) {
  const auto stream = OpenAll();
  ASSERT_TRUE(Drain(*stream).status.ok());
  EXPECT_THAT(stream->Next().status(), HasCode(absl::StatusCode::kFailedPrecondition));
  stream->Cancel();
  EXPECT_THAT(stream->Next().status(), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST_F(FileStreamTest, ANextAfterAnErrorIsFailedPrecondition) {
  const auto stream = cluster_.reader().Open("data", 99);
  EXPECT_THAT(stream->Next().status(), HasCode(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(stream->Next().status(), HasCode(absl::StatusCode::kFailedPrecondition));
}

// The manifest comes from the cache, so the read may have to start again.
TEST_F(FileStreamTest, TheHeaderOfAFileThatIsKnownComesWithItsFirstBytes) {
  ASSERT_TRUE(cluster_.Read(0).ok());
  // The stream reads ahead, so workers may still receive requests at the end of the test.
  const auto go_on = std::make_shared<testing::Notification>();
  cluster_.SpoilSrus([go_on](const auto&) {
    EXPECT_TRUE(go_on->Await());
    return Healthy();
  });
  const auto stream = OpenAll();
  PendingPart header(*stream);
  ASSERT_TRUE(testing::Eventually([&] { return cluster_.worker(0).counts().requests > 1; }));
  EXPECT_FALSE(header.done());
  go_on->Notify();
  ASSERT_TRUE(header.Await());
  ASSERT_TRUE(header.part().ok()) << header.part().status();
  EXPECT_TRUE(std::holds_alternative<ReadHeader>(*header.part()));
  const auto first = stream->Next();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(std::holds_alternative<ReadChunk>(*first));
}

TEST_F(FileStreamTest, CancelBeforeTheFirstNextAsksNobody) {
  const auto stream = OpenAll();
  stream->Cancel();
  EXPECT_THAT(stream->Next().status(), HasCode(absl::StatusCode::kCancelled));
  EXPECT_THAT(stream->Next().status(), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(cluster_.Requests(), 0);
}

TEST_F(FileStreamTest, CancelAnswersTheNextThatWaitsAndCancelsAtTheWorkers) {
  cluster_.SpoilSrus([](const auto&) { return Hang(); });
  const auto stream = OpenAll();
  ASSERT_TRUE(stream->Next().ok());
  PendingPart waiting(*stream);
  ASSERT_TRUE(cluster_.worker(0).Await([](const auto& counts) { return counts.open > 0; }));
  stream->Cancel();
  stream->Cancel();
  ASSERT_TRUE(waiting.Await());
  EXPECT_THAT(waiting.part().status(), HasCode(absl::StatusCode::kCancelled));
  EXPECT_TRUE(cluster_.worker(0).Await([](const auto& counts) { return counts.open == 0; }));
  EXPECT_TRUE(cluster_.AwaitIdle());
  EXPECT_GT(cluster_.Metric("sluice_blocks_total", "cancelled"), 0);
}

TEST_F(FileStreamTest, CancelBetweenTwoNextsEndsWhatWasFetchedAhead) {
  cluster_.worker(2).SpoilSrus([](const auto&) { return Hang(); });  // it has an SRU of the second segment
  const auto stream = OpenAll();
  ASSERT_TRUE(stream->Next().ok());
  ASSERT_TRUE(stream->Next().ok());
  ASSERT_TRUE(cluster_.worker(2).Await([](const auto& counts) { return counts.open > 0; }));
  stream->Cancel();
  EXPECT_TRUE(cluster_.AwaitIdle());
  EXPECT_TRUE(cluster_.worker(2).Await([](const auto& counts) { return counts.open == 0; }));
  EXPECT_THAT(stream->Next().status(), HasCode(absl::StatusCode::kCancelled));
}

TEST_F(FileStreamTest, DroppingTheLastReferenceCancelsTheReadAndAnswersTheNext) {
  cluster_.SpoilSrus([](const auto&) { return Hang(); });
  auto stream = OpenAll();
  ASSERT_TRUE(stream->Next().ok());
  PendingPart waiting(*stream);
  ASSERT_TRUE(cluster_.worker(0).Await([](const auto& counts) { return counts.open > 0; }));
  stream.reset();
  EXPECT_TRUE(cluster_.AwaitIdle());
  ASSERT_TRUE(waiting.Await());
  EXPECT_THAT(waiting.part().status(), HasCode(absl::StatusCode::kCancelled));
}

TEST_F(FileStreamTest, TheConsumerMayDropTheStreamInItsCallback) {
  auto stream = OpenAll();
  testing::Notification done;
  ReadStream& raw = *stream;
  raw.Next([&](const absl::StatusOr<ReadPart>&) {
    stream.reset();
    done.Notify();
  });
  EXPECT_TRUE(done.Await());
}

TEST_F(FileStreamTest, CancelRacesWithNext) {
  for (int round = 0; round < 100; ++round) {
    const auto stream = OpenAll();
    // Wait by the clock: on a busy machine a thousand yields take a second.
    const auto then = std::chrono::steady_clock::now() + round * std::chrono::microseconds(50);
    std::thread canceller([&] {
      while (std::chrono::steady_clock::now() < then) std::this_thread::yield();
      stream->Cancel();
    });
    const auto result = Drain(*stream);
    canceller.join();
    if (result.status.ok()) {
      EXPECT_TRUE(result.data == cluster_.source());
    } else {
      EXPECT_THAT(result.status, HasCode(absl::StatusCode::kCancelled));
    }
  }
  EXPECT_TRUE(cluster_.AwaitIdle());
}

TEST_F(FileStreamTest, ATimeoutCoversTheWholeRead) {
  cluster_.SpoilSrus([](const v1::ReadSruRequest& request) { return request.offset() > 4096 ? Hang() : Healthy(); });
  const auto result = Drain(*cluster_.reader().Open("data", std::nullopt, {.timeout = absl::Milliseconds(500)}));
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(Drain(*cluster_.reader().Open("data", 0, {.timeout = absl::ZeroDuration()})).status,
              HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(Drain(*cluster_.reader().Open("data", 0, {.timeout = -absl::Hours(1)})).status,
              HasCode(absl::StatusCode::kDeadlineExceeded));
}

class FullQueueTest : public ::testing::Test {
 protected:
  // A segment has two SRUs and so two calls, and the queue holds one segment. The policy is rolling: with grants, a
  // hanging call gives up its place in the window, and another call leaves the queue.
  FullQueueTest()
      : cluster_({.file_bytes = 100000,
                  .schedule = {.policy = SchedulePolicy::kRolling, .budget_bytes = 5000, .queue_limit = 2},
                  .reader = {.segment_bytes = 8192}}) {}

  TestCluster cluster_;
};

TEST_F(FullQueueTest, IsResourceExhaustedAtOnceAndNothingIsSent) {
  ASSERT_TRUE(cluster_.Read(0).ok());
  ASSERT_TRUE(cluster_.AwaitIdle());
  cluster_.SpoilSrus([](const auto&) { return Hang(); });
  const auto first = cluster_.reader().Open("data", 0);
  PendingPart waiting(*first);
  // Wait until the workers have received the sent requests, so that they are not counted later.
  ASSERT_TRUE(testing::Eventually([&] {
    const ScheduleState state = cluster_.link().State();
    int open = 0;
    for (size_t i = 0; i < cluster_.size(); ++i) open += cluster_.worker(i).counts().open;
    return state.waiting_calls > 0 && open == state.in_flight_calls;
  }));
  const int before = cluster_.Requests();
  const auto second = Drain(*cluster_.reader().Open("data", 1));
  EXPECT_THAT(second.status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(second.status.message()), HasSubstr("queue_limit is 2"));
  EXPECT_EQ(cluster_.Requests(), before);
  EXPECT_EQ(cluster_.Metric("sluice_blocks_total", "refused"), 1);
  first->Cancel();
  cluster_.SpoilSrus(nullptr);
  ASSERT_TRUE(cluster_.AwaitIdle());
  EXPECT_TRUE(cluster_.Read(1).ok());
}

TEST_F(FullQueueTest, AManifestThatFindsNoRoomIsARefusedBlockToo) {
  ASSERT_TRUE(cluster_.Read(0).ok());
  cluster_.SpoilSrus([](const auto&) { return Hang(); });
  const auto first = cluster_.reader().Open("data", 0);
  PendingPart of_first(*first);
  ASSERT_TRUE(cluster_.worker(0).Await([](const auto& counts) { return counts.open > 0; }));
  std::vector<std::shared_ptr<ReadStream>> fillers;
  std::vector<PendingPart> of_fillers;
  while (cluster_.link().State().waiting_calls < 2) {
    fillers.push_back(cluster_.reader().Open(absl::StrCat("unknown-", fillers.size()), 0));
    of_fillers.emplace_back(*fillers.back());
  }
  const auto refused = Drain(*cluster_.reader().Open("unknown", 0));
  EXPECT_THAT(refused.status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(cluster_.Metric("sluice_blocks_total", "refused"), 1);
  first->Cancel();
  cluster_.SpoilSrus(nullptr);
  for (PendingPart& of_filler : of_fillers) {
    ASSERT_TRUE(of_filler.Await());
    EXPECT_THAT(of_filler.part().status(), HasCode(absl::StatusCode::kNotFound));
  }
}

TEST_F(FullQueueTest, AReadUnderWayGoesOnAndIsNotCountedAsRefused) {
  const auto result = Drain(*cluster_.reader().Open("data", std::nullopt));
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(result.data == cluster_.source());
  EXPECT_EQ(cluster_.Metric("sluice_blocks_total", "refused"), 0);
}

TEST_F(FullQueueTest, ASegmentOfMoreCallsThanTheQueueCanEverHoldIsInvalid) {
  TestCluster cluster({.schedule = {.queue_limit = 3}});
  const auto result = Drain(*cluster.reader().Open("data", 0));
  EXPECT_THAT(result.status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("queue_limit"));
}

}  // namespace
}  // namespace sluice
