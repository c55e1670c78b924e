#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/port_simulation.h"
#include "tests/unit/scheduling/schedule_driver.h"

// Tests the order of blocks: the shortest first, with a share for the oldest.
namespace sluice::testing {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""us;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// The time in which a full port drains, and a round trip.
constexpr nanoseconds kPortDrainTime = 2622us + 200us;

std::vector<PortSimulation::Response> Responses(size_t count, int64_t bytes, nanoseconds think = nanoseconds(0)) {
  const PortSimulation::Response response{.bytes = bytes, .expected_bytes = bytes, .think = think};
  std::vector<PortSimulation::Response> responses(count, response);
  for (size_t i = 0; i < count; ++i) responses[i].worker = static_cast<uint32_t>(1 + i);
  return responses;
}

ScheduleOptions Options(SchedulePolicy policy, bool shortest_first = true) {
  ScheduleOptions options{.profile = TestPort(), .policy = policy, .budget_bytes = {}};
  options.shortest_first = shortest_first;
  return options;
}

// Submits blocks of ten responses of 1 KB, one every 8 ms, and returns the longest time of one.
nanoseconds LongestSmallBlock(PortSimulation& simulation, nanoseconds think, int blocks = 100) {
  std::vector<size_t> submitted;
  // The blocks begin at different times of the large responses.
  for (int i = 0; i < blocks; ++i)
    submitted.push_back(simulation.Submit(At(20ms + i * 7'130us), Responses(10, 1024, think)));
  nanoseconds longest(0);
  for (const size_t block : submitted) longest = std::max(longest, simulation.Await(block));
  return longest;
}

class OrderTest : public ::testing::TestWithParam<SchedulePolicy> {};
INSTANTIATE_TEST_SUITE_P(In, OrderTest, ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         [](const auto& policy) { return std::string(SchedulePolicyName(policy.param)); });

// The bytes of the scan that are already in the port delay the headers of a small block, and the rest of its responses.
TEST_P(OrderTest, ASmallBlockWaitsForNoMoreOfAScanThanIsInThePort) {
  for (const nanoseconds think : {nanoseconds(0), nanoseconds(2ms)}) {
    PortSimulation alone(Options(GetParam()));
    const nanoseconds without = LongestSmallBlock(alone, think);
    for (const int64_t bytes : {1 << 20, 10'240}) {
      PortSimulation simulation(Options(GetParam()));
      const size_t scan = simulation.Submit(At(0ms), Responses(1024, bytes, think));
      EXPECT_LE(LongestSmallBlock(simulation, think), without + 2 * kPortDrainTime) << bytes;
      EXPECT_EQ(simulation.drops(), 0);
      if (bytes == 10'240) continue;  // it ends before the small blocks
      EXPECT_GT(Mbps(simulation.block(scan).received_bytes, simulation.now() - At(0ms)), 80);
    }
  }
}

TEST_P(OrderTest, WithoutShortestFirstASmallBlockWaitsForTheScan) {
  PortSimulation simulation(Options(GetParam(), false));
  simulation.Submit(At(0ms), Responses(1024, 10'240));
  const size_t small = simulation.Submit(At(20ms), Responses(10, 1024));
  EXPECT_GT(simulation.Await(small), 700ms);
}

TEST_P(OrderTest, BlocksOfEqualSizeEndOneAfterTheOther) {
  PortSimulation simulation(Options(GetParam()));
  std::vector<size_t> scans;
  for (int i = 0; i < 4; ++i) scans.push_back(simulation.Submit(At(0ms), Responses(16, 100'000)));
  simulation.Await(scans.back());
  for (size_t i = 0; i < scans.size(); ++i) {
    const nanoseconds time = simulation.Await(scans[i]);
    // In rolling, sizes are unknown at first: blocks take turns until each has 256 KB.
    EXPECT_NEAR(static_cast<double>(time / 1ms), 136.0 * static_cast<double>(i + 1), 60) << i;
  }
}

// More small blocks come than the link can carry.
TEST_P(OrderTest, TheOldestBlockKeepsItsShare) {
  PortSimulation simulation(Options(GetParam()));
  const size_t scan = simulation.Submit(At(0ms), Responses(64, 1 << 20));
  for (int i = 0; i < 400; ++i) simulation.Submit(At(i * 5ms), Responses(8, 10'240));
  EXPECT_EQ(simulation.drops(), 0);
  const double mbps = Mbps(simulation.block(scan).received_bytes, simulation.now() - At(0ms));
  EXPECT_GT(mbps, 15);
  EXPECT_LT(mbps, 45);
}

// In an overload, a block that waits for its turn until it is too late would take the time of one that is not. In
// rolling the sizes of requests that wait are unknown, so no block gives way.
TEST(GrantsOrderTest, BlocksThatCannotMakeTheirDeadlineGiveWay) {
  for (const bool shortest_first : {true, false}) {
    PortSimulation simulation(Options(SchedulePolicy::kGrants, shortest_first));
    constexpr int kBlocks = 100;
    for (int i = 0; i < kBlocks; ++i) {
      // 14 ms of the link every 10 ms.
      simulation.Submit(At(i * 10ms), Responses(16, 10'240), 0, At(i * 10ms + 100ms));
    }
    simulation.RunUntil(At(kBlocks * 10ms + 100ms));
    int in_time = 0;
    for (size_t i = 0; i < kBlocks; ++i) {
      const PortSimulation::Block& block = simulation.block(i);
      in_time += block.ended() && block.ended_at - block.submitted_at <= 100ms ? 1 : 0;
    }
    EXPECT_GE(in_time, 70) << "of 79 that the link can carry";
    EXPECT_GT(simulation.schedule().State().late_blocks, 10);
    EXPECT_EQ(simulation.drops(), 0);
  }
}

ScheduleOptions ShortestFirst() {
  ScheduleOptions options = GrantsOptions();
  options.shortest_first = true;
  return options;
}

TEST(ScheduleOrderTest, TheShortestMessageOfABlockComesFirst) {
  ScheduleDriver link(ShortestFirst());
  link.Submit(At(0ms), {2'000'000, 500});
  EXPECT_THAT(link.Ready(At(20ms), 0, 2'000'000), ElementsAre("grant 0 2991", "grant 0 2991", "grant 0 2991"));
  EXPECT_THAT(link.Ready(At(21ms), 1, 3300), IsEmpty());  // the link is full
  EXPECT_THAT(link.Receive(At(24ms), 0, 3300), ElementsAre("grant 1 3300"));
}

TEST(ScheduleOrderTest, AMessageGetsItsTurnAfterOneBudgetOfOthers) {
  ScheduleDriver link(ShortestFirst());
  std::vector<int64_t> sizes(17, 1000);
  sizes[0] = 50'000;
  link.Submit(At(0ms), sizes);
  link.Ready(At(20ms), 0, 50'000);
  std::vector<std::string> granted;
  const auto take = [&](const ScheduleDriver::Words& words) {
    for (const std::string& word : words) {
      if (word.starts_with("grant")) granted.push_back(word);
    }
  };
  for (uint64_t tag = 1; tag <= 16; ++tag) take(link.Ready(At(20ms), tag, 1000));
  take(link.Receive(At(21ms), 0, 3 * 2991));
  ASSERT_FALSE(granted.empty());
  for (size_t i = 0; i < granted.size() && granted[i] != "grant 0 2991"; ++i) {
    take(link.Receive(At(21ms), std::stoull(granted[i].substr(6)), 1000));
  }
  EXPECT_EQ(std::find(granted.begin(), granted.end(), "grant 0 2991") - granted.begin(), 10)
      << "10 responses of 1000 bytes are one budget";
}

// Sizes that are expected decide nothing: a query of a method that also serves scans is expected to be as large.
TEST(ScheduleOrderTest, ExpectedSizesChangeNoOrder) {
  for (const int64_t expected : {1'000, 2'000'000}) {
    ScheduleDriver link(ShortestFirst());
    link.Submit(At(0ms), {2'000'000, 2'000'000});
    for (const uint64_t tag : {0, 1}) link.Ready(At(20ms), tag, 2'000'000);
    EXPECT_THAT(link.Submit(At(21ms), {expected}), ElementsAre("send 2")) << expected;
    EXPECT_THAT(link.Ready(At(41ms), 2, 1000), IsEmpty()) << "the link is full";
    EXPECT_THAT(link.Receive(At(42ms), 0, 2991), ElementsAre("grant 2 1000")) << expected;
  }
}

TEST(ScheduleOrderTest, ABlockOfUnknownSizeCountsByTheBytesThatWereAnnounced) {
  ScheduleDriver link(ShortestFirst());
  link.Submit(At(0ms), {9000, 9000, 9000});
  link.Submit(At(0ms), {9000, 9000, 9000});
  link.Ready(At(20ms), 0, 400'000);  // fills the link
  link.Ready(At(21ms), 1, 9000);     // the first block is known up to one call
  link.Ready(At(21ms), 3, 9000);     // the second has announced less
  EXPECT_THAT(link.Receive(At(22ms), 0, 2991), ElementsAre("grant 3 2991"));
}

TEST(ScheduleOrderTest, ABlockWhoseSizesAreAllKnownCountsByTheBytesThatRemain) {
  ScheduleDriver link(ShortestFirst());
  link.Submit(At(0ms), {9000});
  link.Submit(At(0ms), {9000});
  link.Ready(At(20ms), 0, 40'000);
  for (int i = 0; i < 8; ++i) link.Receive(At(21ms), 0, 2991);
  link.Ready(At(22ms), 1, 30'000);  // the link is full
  EXPECT_THAT(link.Receive(At(22ms), 0, 2991), ElementsAre("grant 0 2991")) << "13,081 bytes remain";
}

TEST(ScheduleOrderTest, TheBlockThatHasSentTheFewestRequestsSendsTheNext) {
  ScheduleDriver link(ShortestFirst());
  link.Submit(At(0ms), std::vector<int64_t>(40, 1000));
  ASSERT_EQ(link.state().ungranted_calls, 17) << "the room for headers is full";
  EXPECT_THAT(link.Submit(At(1ms), {1000}), IsEmpty());
  EXPECT_THAT(link.Finish(At(2ms), 0), ElementsAre("send 40"));
}

TEST(ScheduleOrderTest, TheOldestBlockSendsAQuarterOfTheRequests) {
  ScheduleDriver link(ShortestFirst());
  link.Submit(At(0ms), std::vector<int64_t>(40, 1000));
  for (int i = 0; i < 8; ++i) link.Submit(At(1ms), {1000});
  std::vector<std::string> sent;
  for (uint64_t tag = 0; tag < 8; ++tag) {
    for (const std::string& word : link.Finish(At(2ms), tag)) sent.push_back(word);
  }
  EXPECT_THAT(sent,
              ElementsAre("send 40", "send 41", "send 42", "send 17", "send 43", "send 44", "send 45", "send 18"));
}

TEST(ScheduleOrderTest, ABlockThatHasABudgetReadyLetsOthersAskFirst) {
  ScheduleDriver link(ShortestFirst());
  link.Submit(At(0ms), std::vector<int64_t>(60, 9000));
  for (uint64_t tag = 0; tag < 17; ++tag) link.Ready(At(20ms), tag, 9000);
  const int64_t ungranted = link.state().ungranted_calls;
  EXPECT_LT(ungranted, 20) << "its stock is full, since nothing takes its responses";
  EXPECT_THAT(link.Submit(At(21ms), {9000, 9000}), ElementsAre(StartsWith("send"), StartsWith("send")));
  EXPECT_EQ(link.state().ungranted_calls, ungranted + 2);
}

// A scan asks no further at a quarter of the bound, a small block at seven eighths.
TEST(ScheduleOrderTest, ResponsesThatWaitAtWorkersAreBounded) {
  ScheduleOptions options = ShortestFirst();
  options.ready_bytes = 1 << 20;
  ScheduleDriver link(options);
  link.Submit(At(0ms), std::vector<int64_t>(100, 9000));
  for (uint64_t tag = 0; tag < 12; ++tag) link.Ready(At(20ms), tag, 60'000);
  EXPECT_GT(link.state().ready_bytes, options.ready_bytes / 2);
  const int64_t waiting = link.state().waiting_calls;
  EXPECT_THAT(link.Finish(At(21ms), 16), IsEmpty()) << "there is room for the headers of another request";
  EXPECT_EQ(link.state().waiting_calls, waiting);
  EXPECT_THAT(link.Submit(At(21ms), {9000}), ElementsAre("send 100"));
  for (uint64_t tag = 12; tag < 16; ++tag) link.Ready(At(40ms), tag, 60'000);
  EXPECT_GT(link.state().ready_bytes, options.ready_bytes / 8 * 7);
  EXPECT_THAT(link.Submit(At(41ms), {9000}), IsEmpty());
}

}  // namespace
}  // namespace sluice::testing
