#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "sluice/fan_out.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/unit/fan_out/fan_out_fixture.h"

namespace sluice {
namespace {

using testing::ExpectConsistent;
using testing::NameOf;
using testing::Pending;
using testing::Script;
using testing::Seen;
using testing::Text;
using testing::Way;
using testing::Wire;

constexpr size_t kServers = 6;
constexpr absl::StatusCode kFaults[] = {absl::StatusCode::kUnavailable, absl::StatusCode::kInternal,
                                        absl::StatusCode::kCancelled, absl::StatusCode::kDeadlineExceeded};

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  size_t Below(size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(engine_); }
  bool OneIn(size_t n) { return Below(n) == 0; }

 private:
  std::mt19937 engine_;
};

// Random faults and options, many concurrent fan-outs, and cancellation at any time. SLUICE_TEST_SEED replays a run.
class FanOutRandomTest : public testing::FanOutTest {
 protected:
  FanOutRandomTest() {
    const char* given = std::getenv("SLUICE_TEST_SEED");
    if (given == nullptr || !absl::SimpleAtoi(given, &seed_)) seed_ = std::random_device()();
  }

  // The script of a call.
  static Script Draw(uint32_t seed) {
    Random random(seed);
    Script script;
    script.messages.assign(random.Below(4), Wire(std::string(random.OneIn(8) ? 50'000 : random.Below(3000), 'x')));
    if (random.OneIn(5)) script.status = {kFaults[random.Below(4)], "a fault"};
    if (random.OneIn(6)) script.hold_before = random.Below(script.messages.size() + 1);
    script.early_headers = random.OneIn(3);
    if (random.OneIn(4)) script.headers.emplace_back("a-header", std::string(random.Below(1000), 'h'));
    if (random.OneIn(20)) script.messages.assign(1, "\x0a\x64!");
    return script;
  }

  void StartFaultyServers() {
    StartServers(kServers);
    for (size_t i = 0; i < kServers; ++i) {
      auto calls = std::make_shared<std::atomic<uint32_t>>(0);
      // The servers outlive this fixture.
      server(i).SetPlay([seed = seed_, i, calls](const Seen&) {
        return Draw(seed + static_cast<uint32_t>(i) * 100'003 + calls->fetch_add(1) * 17);
      });
    }
  }

  static FanOutOptions DrawOptions(Random& random) {
    FanOutOptions options;
    options.timeout = absl::Milliseconds(1 + random.Below(300));
    if (!random.OneIn(4)) options.fail_limit = static_cast<int>(random.Below(3));
    if (random.OneIn(3)) options.success_quorum = 1 + static_cast<int>(random.Below(3));
    if (random.OneIn(3)) {
      options.hedge_after = absl::Microseconds(1 + random.Below(20'000));
    } else if (random.OneIn(2)) {
      options.hedge_after_quantile = 0.9;
    }
    options.hedge_ratio = random.OneIn(4) ? 0.1 : 1;
    return options;
  }

  static FanOut::Map<Text> DrawMap(Random& random) {
    std::vector<std::optional<sluice::Ask<Text>>> asks(kServers);
    for (size_t i = 0; i < kServers; ++i) {
      if (i > 2 && random.OneIn(3)) continue;  // the first three are always asked, for the quorum
      std::vector<size_t> replicas;
      for (size_t other = 0; other < kServers; ++other) {
        const bool first = i == 0 && other == 1;  // hedges need a replica
        if (other != i && (first || random.OneIn(4))) replicas.push_back(other);
      }
      std::optional<int64_t> bytes;
      if (random.OneIn(2)) bytes = static_cast<int64_t>(random.Below(5000));
      asks[i].emplace(Text(), bytes, std::move(replicas));
    }
    return [asks](size_t worker) { return asks[worker]; };
  }

  // Runs one fan-out after the other, and cancels some of them.
  void Caller(uint32_t seed, int fan_outs) {
    Random random(seed);
    for (int i = 0; i < fan_outs; ++i) {
      Pending pending;
      std::atomic<bool> merging = false;
      std::atomic<bool> done = false;
      const bool cancels_in_merge = random.OneIn(10);
      const size_t refuses = random.OneIn(4) ? 1 + random.Below(4) : 1000;
      testing::Notification started;
      const auto merge = [&, merged = size_t{0}](size_t worker, const Text&) mutable {
        EXPECT_FALSE(merging.exchange(true)) << "two at a time";
        EXPECT_FALSE(done) << "after done";
        EXPECT_LT(worker, kServers);
        if (cancels_in_merge) {
          EXPECT_TRUE(started.Await());
          pending.call->Cancel();
        }
        const bool refused = ++merged == refuses;
        merging = false;
        return refused ? absl::DataLossError("refused") : absl::OkStatus();
      };
      const bool streams = random.OneIn(2);
      pending.call = fan_out_->CallAsync(streams ? kStream : kUnary, DrawMap(random), merge, DrawOptions(random),
                                         [&, ended = pending.Done()](FanOutResult result) {
                                           done = true;
                                           ended(std::move(result));
                                         });
      started.Notify();
      for (size_t yields = random.Below(200); yields > 0; --yields) std::this_thread::yield();
      if (random.OneIn(4)) pending.call->Cancel();
      ASSERT_TRUE(pending.Await());
      ExpectConsistent(pending.result());
      asked_ += static_cast<int>(pending.result().asked);
      answered_ += static_cast<int>(pending.result().answered);
    }
  }

  uint32_t seed_ = 0;
  std::atomic<int> asked_ = 0;
  std::atomic<int> answered_ = 0;
};

INSTANTIATE_TEST_SUITE_P(By, FanOutRandomTest,
                         ::testing::Values(SchedulePolicy::kUnscheduled, SchedulePolicy::kRolling,
                                           SchedulePolicy::kGrants, Way(SchedulePolicy::kGrants, false, 3)),
                         NameOf);

TEST_P(FanOutRandomTest, EveryFanOutEndsOnceAndNothingIsLeftBehind) {
  SCOPED_TRACE(absl::StrCat("SLUICE_TEST_SEED=", seed_));
  StartFaultyServers();
  MakeFanOut();
  std::vector<std::thread> callers;
  for (uint32_t i = 0; i < 6; ++i) {
    callers.emplace_back([this, i] { Caller(seed_ + i, 25); });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_GT(answered_, 0) << "of " << asked_;
  EXPECT_TRUE(AwaitIdle());
  for (size_t i = 0; i < kServers; ++i) {
    EXPECT_TRUE(server(i).Await([](const auto& counts) { return counts.open == 0; })) << i;
  }
}

TEST_P(FanOutRandomTest, DestroyedAtAnyTime) {
  SCOPED_TRACE(absl::StrCat("SLUICE_TEST_SEED=", seed_));
  StartFaultyServers();
  Random random(seed_);
  for (int round = 0; round < 20; ++round) {
    MakeFanOut();
    std::vector<std::unique_ptr<Pending>> pending;
    for (size_t i = random.Below(6); i < 6; ++i) {
      pending.push_back(CallAsync(DrawMap(random), DrawOptions(random), Ignore(), random.OneIn(2) ? kStream : kUnary));
    }
    for (size_t yields = random.Below(500); yields > 0; --yields) std::this_thread::yield();
    fan_out_.reset();
    link_.reset();
    for (const auto& ended : pending) {
      EXPECT_TRUE(ended->ended());
      ExpectConsistent(ended->result());
    }
  }
}

}  // namespace
}  // namespace sluice
