#include <chrono>
#include <iostream>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "sluice/block_reader.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/random_seed.h"
#include "tests/unit/storage/blocks/test_cluster.h"

namespace sluice {
namespace {

using testing::Drain;
using testing::Fault;
using testing::Healthy;
using testing::ReadResult;
using testing::TestCluster;

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  bool OneIn(uint32_t n) { return Below(n) == 0; }
  uint32_t Below(uint32_t n) {
    std::lock_guard lock(mutex_);
    return static_cast<uint32_t>(random_() % n);
  }

 private:
  std::mutex mutex_;
  std::mt19937_64 random_;
};

Fault AnyFault(Dice& dice) {
  // Few calls hang, since each of them waits for a reset, and a worker gets 5 resets a second.
  if (dice.OneIn(32)) return testing::Hang();
  switch (dice.Below(7)) {
    case 0:
      return testing::Garbage();
    case 1:
      return testing::FlipByte();
    case 2:
      return testing::OneByteMore();
    case 3:
      return testing::OneByteLess();
    case 4:
      return testing::Slow(absl::Milliseconds(1 + dice.Below(40)));
    default:
      return testing::Error(static_cast<absl::StatusCode>(1 + dice.Below(16)));
  }
}

bool IsDocumented(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kNotFound:
      return true;
    default:
      return false;
  }
}

// The bytes read are the striped bytes, except in the gaps that the read reports.
void ExpectRightBytes(const ReadResult& result, const std::string& source) {
  if (result.status.ok()) {
    std::string expected = source.substr(result.header.offset, result.header.length);
    for (const MissingBytes& gap : result.missing) {
      expected.replace(gap.offset - result.header.offset, gap.length, gap.length, '\0');
    }
    EXPECT_TRUE(result.data == expected);
    return;
  }
  for (const ReadChunk& chunk : result.chunks)
    EXPECT_TRUE(chunk.data == source.substr(chunk.offset, chunk.data.size()));
}

class RandomReader {
 public:
  RandomReader(TestCluster& cluster, Dice& dice) : cluster_(cluster), dice_(dice) {}

  void ReadFor(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end && !::testing::Test::HasFailure()) ReadOnce();
  }
  int whole() const { return whole_; }

 private:
  void ReadOnce() {
    const bool partial = dice_.OneIn(3);
    const auto block = dice_.OneIn(3) ? std::nullopt : std::optional<uint64_t>(dice_.Below(6));
    const auto timeout = dice_.OneIn(5) ? absl::Milliseconds(dice_.Below(100)) : absl::Seconds(20);
    auto stream = cluster_.reader().Open("data", block, {.allow_partial = partial, .timeout = timeout});
    std::thread canceller;
    const bool cancels = dice_.OneIn(5);
    if (cancels) {
      const auto then = std::chrono::steady_clock::now() + std::chrono::microseconds(dice_.Below(5000));
      canceller = std::thread([stream, then] {
        while (std::chrono::steady_clock::now() < then) std::this_thread::yield();
        stream->Cancel();
      });
    }
    if (dice_.OneIn(8)) {
      stream->Next([](const absl::StatusOr<ReadPart>&) {});
      stream.reset();
    } else {
      const ReadResult result = Drain(*stream);
      EXPECT_TRUE(result.status.ok() || IsDocumented(result.status.code())) << result.status;
      if (!cancels) {
        EXPECT_FALSE(absl::IsCancelled(result.status)) << result.status;
      }
      if (!partial) {
        EXPECT_TRUE(result.missing.empty());
      }
      ExpectRightBytes(result, cluster_.source());
      if (result.status.ok() && result.missing.empty()) ++whole_;
    }
    if (canceller.joinable()) canceller.join();
  }

  TestCluster& cluster_;
  Dice& dice_;
  int whole_ = 0;
};

// A seed replays the choices of a run, but not their distribution over the threads.
void ExpectRightBytesOrADocumentedStatus(TestCluster::Options options) {
  const uint64_t seed = TakeRandomSeed().value;
  std::cout << "SLUICE_SEED=" << seed << std::endl;
  Dice dice(seed);
  options.reader.sru_timeout = absl::Milliseconds(100);
  options.reader.attempts = 3;
  TestCluster cluster(std::move(options));
  // One worker is often faulty, and each other worker sometimes.
  const size_t bad = dice.Below(static_cast<uint32_t>(cluster.size()));
  for (size_t i = 0; i < cluster.size(); ++i) {
    const uint32_t odds = i == bad ? 2 : 25;
    cluster.worker(i).SpoilSrus([&dice, odds](const auto&) { return dice.OneIn(odds) ? AnyFault(dice) : Healthy(); });
    cluster.worker(i).SpoilManifests(
        [&dice, odds](const auto&) { return dice.OneIn(odds) ? AnyFault(dice) : Healthy(); });
  }
  std::vector<RandomReader> readers(4, RandomReader(cluster, dice));
  std::vector<std::thread> threads;
  for (RandomReader& reader : readers) {
    threads.emplace_back([&reader] { reader.ReadFor(std::chrono::seconds(2)); });
  }
  for (std::thread& thread : threads) thread.join();
  int whole = 0;
  for (const RandomReader& reader : readers) whole += reader.whole();
  EXPECT_GT(whole, 0) << "not one read came through";
  EXPECT_TRUE(cluster.AwaitIdle());
  cluster.SpoilSrus(nullptr);
  for (size_t i = 0; i < cluster.size(); ++i) cluster.worker(i).SpoilManifests(nullptr);
  for (size_t i = 0; i < cluster.size(); ++i) {
    EXPECT_TRUE(cluster.worker(i).Await([](const auto& counts) { return counts.open == 0; }));
  }
  // A second reader has enough time: the one above gives up on workers that are merely slow.
  const auto patient = BlockReader::Create(cluster.shared_link(), {.workers = cluster.reader_options().workers});
  ASSERT_TRUE(patient.ok()) << patient.status();
  const ReadResult result = Drain(*(*patient)->Open("data", std::nullopt));
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(result.data == cluster.source());
}

TEST(BlockReaderRandomTest, WithReplicasAndInlineCallbacks) {
  ExpectRightBytesOrADocumentedStatus({.workers = 5,
                                       .file_bytes = 150000,
                                       .sru_bytes = 5000,
                                       .replicas = 2,
                                       .inline_callbacks = true,
                                       .reader = {.segment_bytes = 12000}});
}

TEST(BlockReaderRandomTest, LargeSrusAndAShortQueue) {
  ExpectRightBytesOrADocumentedStatus(
      {.workers = 3, .file_bytes = 500000, .sru_bytes = 30000, .replicas = 3, .schedule = {.queue_limit = 24}});
}

TEST(BlockReaderRandomTest, BatchesWithoutReplicas) {
  ExpectRightBytesOrADocumentedStatus(
      {.workers = 5, .file_bytes = 150000, .sru_bytes = 5000, .schedule = {.policy = SchedulePolicy::kBatches}});
}

}  // namespace
}  // namespace sluice
