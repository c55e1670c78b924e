#include "lib/storage/blocks/block_cache.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/clock.h"
#include "tests/eventually.h"
#include "tests/has_code.h"
#include "tests/notification.h"
#include "tests/unit/storage/blocks/test_cached_reader.h"
#include "tests/unit/storage/stripe/striped_folder.h"

namespace sluice {
namespace {

using testing::Eventually;
using testing::Hang;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::Healthy;
using testing::kPatience;
using ::testing::SizeIs;
using testing::Slow;
using testing::TestCachedReader;

constexpr uint32_t kWorkers = 4;
constexpr uint32_t kSruBytes = 1000;
constexpr uint64_t kBlockBytes = kWorkers * kSruBytes;
constexpr size_t kFileBytes = 5 * kBlockBytes + 500;

// The result of reading a range.
struct Outcome {
  absl::StatusOr<BlockCache::Range> range = absl::UnknownError("");
  testing::Notification done;
  BlockCache::TicketPtr ticket;

  const absl::StatusOr<BlockCache::Range>& Await() {
    EXPECT_TRUE(done.Await());
    return range;
  }
};

// A file "data" over four workers, in blocks of 4000 bytes.
class BlockCacheTest : public ::testing::Test {
 protected:
  void Start(uint64_t cache_bytes = 64 << 20, BlockReader::Options reader = {}) {
    const auto manifest =
        testing::StripeBytes(source_, {.root = Root(), .file = "data", .workers = kWorkers, .sru_bytes = kSruBytes});
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    level_ = std::make_unique<TestCachedReader>(
        Root(), kWorkers, TestCachedReader::Options{.cache_bytes = cache_bytes, .reader = std::move(reader)});
  }

  void Restripe(const std::string& source) {
    const auto manifest = testing::StripeBytes(
        source, {.root = Root(), .file = "data", .workers = kWorkers, .sru_bytes = kSruBytes, .replace = true});
    ASSERT_TRUE(manifest.ok()) << manifest.status();
  }

  std::string Root() const { return folder_.path() / "out"; }

  std::shared_ptr<Outcome> Begin(BlockCache::Request request) {
    auto outcome = std::make_shared<Outcome>();
    if (request.file.empty()) request.file = "data";
    if (request.deadline == TimePoint()) request.deadline = DeadlineAfter(kPatience);
    outcome->ticket = level_->cache().Read(std::move(request), [outcome](absl::StatusOr<BlockCache::Range> range) {
      outcome->range = std::move(range);
      outcome->done.Notify();
    });
    return outcome;
  }

  absl::StatusOr<BlockCache::Range> Read(BlockCache::Request request) { return Begin(std::move(request))->Await(); }

  void ExpectBytes(const absl::StatusOr<BlockCache::Range>& range, uint64_t offset, uint64_t length) {
    ASSERT_TRUE(range.ok()) << range.status();
    EXPECT_EQ(range->data, source_.substr(offset, length));
    EXPECT_THAT(range->missing, SizeIs(0));
    EXPECT_EQ(range->file_bytes, kFileBytes);
  }

  double Lookups(const std::string& outcome) const {
    return level_->Metric("sluice_mid_level_cache_lookups_total", outcome);
  }
  double ReadAheads(const std::string& outcome) const {
    return level_->Metric("sluice_mid_level_read_ahead_blocks_total", outcome);
  }
  double CacheBytes() const { return level_->Metric("sluice_mid_level_cache_bytes"); }

  const std::string source_ = testing::SourceBytes(kFileBytes);
  testing::TemporaryFolder folder_;
  std::unique_ptr<TestCachedReader> level_;
};

TEST_F(BlockCacheTest, AnswersAnyRange) {
  Start();
  for (const auto& [offset, length] : std::vector<std::pair<uint64_t, uint32_t>>{
           {0, 1}, {0, kFileBytes}, {3999, 2}, {4000, 4000}, {1, 12345}, {kFileBytes - 1, 1}}) {
    SCOPED_TRACE(offset);
    ExpectBytes(Read({.offset = offset, .length = length}), offset, length);
  }
}

TEST_F(BlockCacheTest, WhatIsWantedLaterHasToBeInTheFile) {
  Start();
  ExpectBytes(Read({.offset = 0, .length = 10, .more = kFileBytes - 10}), 0, 10);
  EXPECT_THAT(Read({.offset = 0, .length = 10, .more = kFileBytes - 9}).status(),
              HasCode(absl::StatusCode::kOutOfRange));
}

TEST_F(BlockCacheTest, ATicketThatIsCancelledBeforeItIsReadIsCancelledOnce) {
  Start();
  std::atomic<int> calls = 0;
  const auto ticket = BlockCache::Prepare({.file = "data", .length = 1, .deadline = DeadlineAfter(kPatience)},
                                          [&](const absl::StatusOr<BlockCache::Range>& range) {
                                            EXPECT_THAT(range.status(), HasCode(absl::StatusCode::kCancelled));
                                            ++calls;
                                          });
  EXPECT_EQ(calls, 0);
  level_->cache().Cancel(ticket);
  EXPECT_EQ(calls, 1);
  level_->cache().Read(ticket);
  level_->cache().Cancel(ticket);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(level_->Requests(), 0);
}

TEST_F(BlockCacheTest, RefusesARangeThatTheFileEndsBefore) {
  Start();
  for (int i = 0; i < 2; ++i) {  // first with an unknown file, then with a known one
    ExpectBytes(Read({.offset = kFileBytes, .length = 1, .up_to_end = true}), kFileBytes, 0);
    EXPECT_THAT(Read({.offset = kFileBytes, .length = 1}).status(), HasCode(absl::StatusCode::kOutOfRange));
    EXPECT_THAT(Read({.offset = 1, .length = kFileBytes}).status(), HasCode(absl::StatusCode::kOutOfRange));
    EXPECT_THAT(Read({.offset = ~uint64_t{0}, .length = 1}).status(), HasCode(absl::StatusCode::kOutOfRange));
    ExpectBytes(Read({.offset = 20000, .length = 4000, .up_to_end = true}), 20000, 500);
  }
  EXPECT_THAT(Read({.file = "other", .length = 1}).status(), HasCode(absl::StatusCode::kNotFound));
}

TEST_F(BlockCacheTest, ManyRangesOfABlockReadItOnce) {
  Start();
  std::vector<std::shared_ptr<Outcome>> ranges;
  for (uint64_t offset = 0; offset < kBlockBytes; offset += 100) {
    ranges.push_back(Begin({.offset = offset, .length = 100}));
  }
  for (size_t i = 0; i < ranges.size(); ++i) ExpectBytes(ranges[i]->Await(), 100 * i, 100);
  EXPECT_EQ(level_->Requests(), 1 + static_cast<int>(kWorkers));  // the manifest, and each SRU
  EXPECT_EQ(Lookups("miss"), 1);
  EXPECT_EQ(Lookups("hit") + Lookups("joined"), static_cast<double>(ranges.size()) - 1);
  EXPECT_EQ(CacheBytes(), kBlockBytes);
  ExpectBytes(Read({.offset = 5, .length = 5}), 5, 5);
  EXPECT_EQ(level_->Requests(), 1 + static_cast<int>(kWorkers));
}

TEST_F(BlockCacheTest, AFileThatIsReadInOrderIsReadOneBlockAhead) {
  Start();
  ExpectBytes(Read({.offset = 0, .length = 10}), 0, 10);
  EXPECT_EQ(CacheBytes(), kBlockBytes);
  ExpectBytes(Read({.offset = kBlockBytes, .length = 10}), kBlockBytes, 10);
  EXPECT_EQ(CacheBytes(), 3 * kBlockBytes);
  EXPECT_EQ(ReadAheads("used"), 0);
  ExpectBytes(Read({.offset = 2 * kBlockBytes, .length = 10}), 2 * kBlockBytes, 10);
  EXPECT_EQ(ReadAheads("used"), 1);
  EXPECT_EQ(Lookups("miss"), 2);
  // The end of the file has no next block.
  ExpectBytes(Read({.offset = 4 * kBlockBytes, .length = 4500}), 4 * kBlockBytes, 4500);
  EXPECT_EQ(CacheBytes(), kFileBytes);
}

TEST_F(BlockCacheTest, ARangeReadsAheadOnceAndNotWheneverItLooksAgain) {
  Start();
  ExpectBytes(Read({.offset = 0, .length = 10}), 0, 10);
  level_->SpoilSrus(
      [](const auto& request) { return request.offset() == kSruBytes ? Slow(absl::Milliseconds(200)) : Healthy(); });
  const auto waiting = Begin({.offset = kBlockBytes, .length = 10});
  level_->cache().Forget("data");
  ExpectBytes(Read({.offset = 0, .length = 10}), 0, 10);
  ExpectBytes(waiting->Await(), kBlockBytes, 10);
  EXPECT_EQ(CacheBytes(), 2 * kBlockBytes);
}

TEST_F(BlockCacheTest, TheLeastRecentlyUsedBlockGoesFirst) {
  Start(2 * kBlockBytes);
  ExpectBytes(Read({.offset = 0, .length = 10}), 0, 10);
  ExpectBytes(Read({.offset = 2 * kBlockBytes, .length = 10}), 2 * kBlockBytes, 10);
  ExpectBytes(Read({.offset = 10, .length = 10}), 10, 10);
  ExpectBytes(Read({.offset = 4 * kBlockBytes, .length = 10}), 4 * kBlockBytes, 10);
  EXPECT_EQ(CacheBytes(), 2 * kBlockBytes);
  EXPECT_EQ(Lookups("miss"), 3);
  ExpectBytes(Read({.offset = 20, .length = 10}), 20, 10);
  EXPECT_EQ(Lookups("miss"), 3);
  ExpectBytes(Read({.offset = 2 * kBlockBytes, .length = 10}), 2 * kBlockBytes, 10);
  EXPECT_EQ(Lookups("miss"), 4);
}

TEST_F(BlockCacheTest, ABlockThatIsLargerThanTheCacheIsReadAlone) {
  Start(100);
  ExpectBytes(Read({.offset = 0, .length = kFileBytes}), 0, kFileBytes);
}

TEST_F(BlockCacheTest, BlocksThatAreWaitedForLeaveNoRoomForOthers) {
  Start(kBlockBytes);
  ExpectBytes(Read({.offset = 0, .length = 10}), 0, 10);
  level_->SpoilSrus([](const auto&) { return Hang(); });
  const auto waiting = Begin({.offset = kBlockBytes, .length = 10});
  const auto refused = Read({.offset = 2 * kBlockBytes, .length = 10});
  EXPECT_THAT(refused.status(), HasCode(absl::StatusCode::kResourceExhausted));
  level_->cache().Cancel(waiting->ticket);
  EXPECT_THAT(waiting->Await().status(), HasCode(absl::StatusCode::kCancelled));
  level_->SpoilSrus(nullptr);
  ExpectBytes(Read({.offset = 2 * kBlockBytes, .length = 10}), 2 * kBlockBytes, 10);
}

TEST_F(BlockCacheTest, WhatThereIsNoRoomForIsNotFetched) {
  Start(kBlockBytes);
  ASSERT_TRUE(
      testing::StripeBytes(source_, {.root = Root(), .file = "other", .workers = kWorkers, .sru_bytes = 500}).ok());
  std::atomic<int> asked_in_vain = 0;
  level_->SpoilSrus([&](const auto& request) {
    if (request.file() == "other") ++asked_in_vain;
    return Hang();
  });
  const auto waiting = Begin({.offset = 0, .length = 10});
  EXPECT_TRUE(level_->worker(1).Await([](const auto& counts) { return counts.holding > 0; }));
  EXPECT_THAT(Read({.file = "other", .length = 10}).status(), HasCode(absl::StatusCode::kResourceExhausted));
  level_->cache().Cancel(waiting->ticket);
  EXPECT_TRUE(level_->worker(1).Await([](const auto& counts) { return counts.open == 0; }));
  level_->SpoilSrus(nullptr);
  EXPECT_EQ(asked_in_vain, 0);
}

// With room for three blocks, each range that reads ahead must drop one block, but not the block that it is about to
// wait for.
TEST_F(BlockCacheTest, ReadingAheadLeavesTheBlockThatItIsDoneFor) {
  Start(3 * kBlockBytes);
  ExpectBytes(Read({.offset = 0, .length = 10}), 0, 10);
  level_->SpoilSrus([](const auto&) { return Slow(absl::Milliseconds(200)); });
  std::vector<std::shared_ptr<Outcome>> ranges;
  for (uint64_t block = 1; block <= 3; ++block) ranges.push_back(Begin({.offset = block * kBlockBytes, .length = 10}));
  for (uint64_t block = 1; block <= 3; ++block) ExpectBytes(ranges[block - 1]->Await(), block * kBlockBytes, 10);
}

// A different range also waits for the other half of the cache.
TEST_F(BlockCacheTest, TheFirstOfThoseWhoWaitedLeavesTheBlockToTheOthers) {
  Start(2 * kBlockBytes);
  ExpectBytes(Read({.offset = 4 * kBlockBytes, .length = 10}), 4 * kBlockBytes, 10);
  level_->SpoilSrus(
      [](const auto& request) { return request.offset() == 2 * kSruBytes ? Hang() : Slow(absl::Milliseconds(200)); });
  const auto elsewhere = Begin({.offset = 2 * kBlockBytes, .length = 10});
  const auto into_the_next = Begin({.offset = kBlockBytes - 10, .length = 20});
  const auto within = Begin({.offset = kBlockBytes - 20, .length = 10});
  ExpectBytes(within->Await(), kBlockBytes - 20, 10);
  EXPECT_THAT(into_the_next->Await().status(), HasCode(absl::StatusCode::kResourceExhausted));
  level_->cache().Cancel(elsewhere->ticket);
}

TEST_F(BlockCacheTest, ABlockThatNobodyWaitsForAnyMoreIsGivenUp) {
  Start();
  level_->SpoilSrus([](const auto&) { return Hang(); });
  const auto first = Begin({.offset = 0, .length = 10});
  const auto second = Begin({.offset = 10, .length = 10});
  EXPECT_TRUE(level_->worker(1).Await([](const auto& counts) { return counts.holding > 0; }));
  level_->cache().Cancel(first->ticket);
  EXPECT_THAT(first->Await().status(), HasCode(absl::StatusCode::kCancelled));
  EXPECT_EQ(level_->worker(1).counts().cancelled, 0);
  level_->cache().Cancel(second->ticket);
  level_->cache().Cancel(second->ticket);
  EXPECT_TRUE(level_->worker(1).Await([](const auto& counts) { return counts.cancelled > 0; }));
  EXPECT_EQ(CacheBytes(), 0);
}

TEST_F(BlockCacheTest, AGapIsAnErrorOfTheRangesThatTouchIt) {
  Start();
  level_->worker(2).Stop();
  ExpectBytes(Read({.offset = 1000, .length = 1000}), 1000, 1000);
  const auto strict = Read({.offset = 1500, .length = 1000});
  EXPECT_THAT(strict.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(strict.status().message()), HasSubstr("SRU 2 of file \"data\": worker 2"));
  const auto partial = Read({.offset = 1500, .length = 2000, .allow_partial = true});
  ASSERT_TRUE(partial.ok()) << partial.status();
  EXPECT_EQ(partial->data, source_.substr(1500, 500) + std::string(1000, '\0') + source_.substr(3000, 500));
  ASSERT_THAT(partial->missing, SizeIs(1));
  EXPECT_EQ(partial->missing[0].offset, 2000u);
  EXPECT_EQ(partial->missing[0].length, 1000u);
  EXPECT_EQ(Lookups("miss"), 1);  // not every range requests the missing block
  level_->worker(2).Start();
  EXPECT_TRUE(Eventually([&] { return Read({.offset = 1500, .length = 1000}).ok(); }));
}

TEST_F(BlockCacheTest, WhoHasMoreTimeThanTheFirstOneIsServedAnew) {
  Start();
  ExpectBytes(Read({.offset = 0, .length = 10}), 0, 10);  // so that the manifest is known
  std::atomic<int> asked = 0;
  level_->worker(1).SpoilSrus([&](const auto& request) {
    // The next block is read ahead, and its request may be the first.
    const bool of_this_block = request.offset() == kSruBytes;
    return of_this_block && asked++ == 0 ? Hang() : Healthy();
  });
  const auto hasty =
      Begin({.offset = kBlockBytes + 1000, .length = 10, .deadline = DeadlineAfter(absl::Milliseconds(50))});
  const auto patient = Begin({.offset = kBlockBytes + 1000, .length = 10});
  EXPECT_FALSE(hasty->Await().ok());
  ExpectBytes(patient->Await(), kBlockBytes + 1000, 10);
}

TEST_F(BlockCacheTest, ThoseWhoHaveMoreTimeAreServedAnewByOneRead) {
  Start();
  ExpectBytes(Read({.offset = 0, .length = 10}), 0, 10);  // so that the manifest is known
  level_->worker(1).SpoilSrus([](const auto&) { return Hang(); });
  std::vector<std::shared_ptr<Outcome>> ranges;
  for (int i = 0; i < 10; ++i) {
    const TimePoint deadline = DeadlineAfter(absl::Milliseconds(50 + 50 * i));
    ranges.push_back(Begin({.offset = 2 * kBlockBytes + 1000, .length = 10, .deadline = deadline}));
  }
  for (const auto& range : ranges) EXPECT_FALSE(range->Await().ok());
  EXPECT_LE(Lookups("miss"), 1 + 2);
}

TEST_F(BlockCacheTest, AMomentMoreIsNotWorthAnotherRead) {
  Start();
  ExpectBytes(Read({.offset = 0, .length = 10}), 0, 10);  // so that the manifest is known
  level_->worker(1).SpoilSrus([](const auto&) { return Hang(); });
  const TimePoint deadline = DeadlineAfter(absl::Milliseconds(200));
  BlockCache::Request request = {
      .offset = 2 * kBlockBytes + 1000, .length = 10, .allow_partial = true, .deadline = deadline};
  const auto first = Begin(request);
  request.deadline += std::chrono::milliseconds(1);
  const auto second = Begin(request);
  for (const auto& range : {first, second}) {
    ASSERT_TRUE(range->Await().ok()) << range->Await().status();
    EXPECT_THAT(range->Await()->missing, SizeIs(1));
  }
  EXPECT_EQ(Lookups("miss"), 2);
}

TEST_F(BlockCacheTest, ForgetsTheBlocksThatItIsTold) {
  Start();
  ExpectBytes(Read({.offset = 0, .length = 10}), 0, 10);
  level_->cache().Forget("other");
  EXPECT_EQ(CacheBytes(), kBlockBytes);
  level_->cache().Forget("data");
  EXPECT_EQ(CacheBytes(), 0);
  ExpectBytes(Read({.offset = 0, .length = 10}), 0, 10);
  EXPECT_EQ(Lookups("miss"), 2);
}

TEST_F(BlockCacheTest, AnotherVersionOfAFileIsReadAnew) {
  Start();
  ExpectBytes(Read({.offset = 0, .length = 10, .version = 1}), 0, 10);
  const std::string other = testing::SourceBytes(kFileBytes - 1000);
  Restripe(other);
  ExpectBytes(Read({.offset = 0, .length = 10, .version = 1}), 0, 10);
  const auto anew = Read({.offset = 0, .length = 10, .version = 2});
  ASSERT_TRUE(anew.ok()) << anew.status();
  EXPECT_EQ(anew->data, other.substr(0, 10));
  EXPECT_EQ(anew->file_bytes, other.size());
  // Further reads of the first version detect the change, and the cache keeps none of their bytes.
  EXPECT_TRUE(Eventually([&] {
    const auto old = Read({.offset = kBlockBytes, .length = 10, .version = 1});
    return old.ok() && old->data == other.substr(kBlockBytes, 10) && old->file_bytes == other.size();
  }));
}

TEST_F(BlockCacheTest, ARangeIntoWhatANewVersionHasCutOffIsAnError) {
  Start();
  ExpectBytes(Read({.offset = 4 * kBlockBytes, .length = kBlockBytes, .version = 1}), 4 * kBlockBytes, kBlockBytes);
  Restripe(testing::SourceBytes(kFileBytes - 1000));
  ASSERT_TRUE(Read({.offset = 0, .length = 10, .version = 2}).ok());
  const auto across = Read({.offset = 5 * kBlockBytes - 10, .length = 20, .version = 1});
  EXPECT_THAT(across.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(across.status().message()), HasSubstr("striped anew"));
}

TEST_F(BlockCacheTest, ItsEndCancelsThoseWhoWait) {
  Start();
  level_->SpoilSrus([](const auto&) { return Hang(); });
  const auto waiting = Begin({.offset = 0, .length = 10});
  EXPECT_TRUE(level_->worker(1).Await([](const auto& counts) { return counts.holding > 0; }));
  level_->DestroyCache();
  EXPECT_THAT(waiting->Await().status(), HasCode(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace sluice
