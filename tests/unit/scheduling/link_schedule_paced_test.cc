#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/has_code.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/port_simulation.h"
#include "tests/unit/scheduling/schedule_driver.h"

namespace sluice::testing {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;

// 8 Gbit/s and 200 µs, so the path holds 200 KB, in front of a port of 64 KB.
LinkProfile LongPath() {
  LinkProfile profile;
  profile.capacity_bytes_per_second = 1e9;
  profile.buffer_bytes = 64 * 1024;
  profile.propagation_rtt = absl::Microseconds(200);
  return profile;
}

struct Transfer {
  double goodput_share = 0;
  int64_t drops = 0;
};

// Blocks of 64 responses of 32 KB, two at a time.
Transfer Read(SchedulePolicy policy, bool paced) {
  ScheduleOptions options;
  options.profile = LongPath();
  options.policy = policy;
  options.paced = paced;
  PortSimulation simulation(options, LongPath());
  std::vector<PortSimulation::Response> responses;
  for (uint32_t worker = 1; worker <= 64; ++worker) {
    responses.push_back(
        {.bytes = 32'768, .expected_bytes = 32'768, .think = {}, .worker = worker, .byte_time = nanoseconds(1)});
  }
  constexpr int kBlocks = 20;
  const TimePoint begin = TimePoint() + 1ms;
  size_t block = simulation.Submit(begin, responses);
  for (int i = 1; i < kBlocks; ++i) {
    const size_t next = simulation.Submit(simulation.now(), responses);
    simulation.Await(block);
    block = next;
  }
  simulation.Await(block);
  const double seconds = std::chrono::duration<double>(simulation.now() - begin).count();
  return {.goodput_share = kBlocks * 64 * 32'768 / seconds / 1e9, .drops = simulation.drops()};
}

class PacedTest : public ::testing::TestWithParam<SchedulePolicy> {};

TEST_P(PacedTest, FillsAPathThatHoldsMoreThanThePortCanBuffer) {
  const Transfer bounded = Read(GetParam(), false);
  EXPECT_LT(bounded.goodput_share, 0.3);
  EXPECT_EQ(bounded.drops, 0);
  const Transfer paced = Read(GetParam(), true);
  EXPECT_GT(paced.goodput_share, 0.85) << "0.97 of the link, and 4 % of it are headers";
  EXPECT_EQ(paced.drops, 0);
}

INSTANTIATE_TEST_SUITE_P(Policies, PacedTest, ::testing::Values(SchedulePolicy::kGrants, SchedulePolicy::kRolling),
                         [](const auto& param) { return std::string(SchedulePolicyName(param.param)); });

TEST(PacedGrantsTest, FollowEachOtherAtTheRateOfTheLink) {
  ScheduleOptions options = GrantsOptions();
  options.profile.propagation_rtt = absl::Milliseconds(100);
  options.paced = true;
  ScheduleDriver link(options);
  link.Submit(At(0ms), {3000, 3000, 3000, 3000});
  EXPECT_THAT(link.Ready(At(100ms), 0, 3000), ElementsAre("grant 0 3000", "grant 1 3000"));
  EXPECT_THAT(link.Ready(At(100ms), 2, 3000), ::testing::IsEmpty()) << "6000 bytes are 1000 above half of the budget";
  EXPECT_EQ(link.next_timer(), At(100ms) + nanoseconds(1'030'929));
  EXPECT_THAT(link.Timer(link.next_timer()), ElementsAre("grant 2 3000"));
}

// Otherwise sluice-link would reserve them from the buffer, and other processes would get nothing.
TEST_P(PacedTest, BytesOnThePathAreNotInTheBufferThatProcessesShare) {
  ScheduleOptions options;
  options.profile = LongPath();
  options.policy = GetParam();
  options.paced = true;
  options.budget_bytes = options.profile.buffer_bytes;
  ScheduleDriver link(options);
  link.Submit(At(0ms), std::vector<int64_t>(100, 1448));
  if (GetParam() == SchedulePolicy::kGrants) {
    for (int i = 0; i < 100; ++i) link.Ready(At(1ms), i, 1448);
  }
  for (int i = 0; i < 100 && link.next_timer() < At(5ms); ++i) link.Timer(link.next_timer());
  ASSERT_GT(link.state().in_flight_bytes, *options.budget_bytes);
  EXPECT_LE(link.schedule().Demand(At(5ms)).in_flight_bytes, *options.budget_bytes);
}

TEST(PacedOptionsTest, BatchesHaveAPaceOfTheirOwn) {
  ScheduleOptions options = OptionsWith(SchedulePolicy::kBatches);
  options.paced = true;
  EXPECT_THAT(options.Validate(), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST(PacedReconfigureTest, ASmallerBufferKeepsThePace) {
  ScheduleOptions options;
  options.profile = LongPath();
  options.policy = SchedulePolicy::kRolling;
  options.paced = true;
  options.budget_bytes = options.profile.buffer_bytes;
  ScheduleDriver link(options);
  options.profile.buffer_bytes /= 4;
  options.budget_bytes = options.profile.buffer_bytes;
  link.Reconfigure(At(0ms), options);
  link.SetBudget(At(0ms), *options.budget_bytes);
  link.Submit(At(0ms), std::vector<int64_t>(100, 1448));
  for (int i = 0; i < 20 && link.next_timer() < At(1ms); ++i) link.Timer(link.next_timer());
  EXPECT_GT(link.state().in_flight_bytes, *options.budget_bytes);
}

}  // namespace
}  // namespace sluice::testing
