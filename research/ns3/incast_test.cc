#include "research/ns3/incast.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/percentile.h"

// Small points of the simulation on ns-3, with Sluice's own code from a fan-out down to the bytes of HTTP/2.
namespace sluice {
namespace {

using testing::Distribution;
using testing::IdleSeconds;
using testing::IncastOptions;
using testing::IncastResult;
using testing::RunIncast;

// 32 workers with 32 KB each, through a port of 1 Gbit/s with 32 KB.
IncastOptions SmallPort(SchedulePolicy policy) {
  IncastOptions options;
  options.policy = policy;
  options.workers = 32;
  options.sizes = *Distribution::ParseSizes("fixed:32kb");
  options.think = *Distribution::ParseTimes("0");
  options.watch_wire = policy == SchedulePolicy::kGrants || policy == SchedulePolicy::kRolling;
  return options;
}

IncastResult Play(const IncastOptions& options) {
  const auto result = RunIncast(options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.value_or(IncastResult());
}

// No packet may be dropped, no timer of TCP may expire, and all bytes must fit the budget.
void ExpectLossless(const IncastOptions& options, const IncastResult& result) {
  EXPECT_EQ(result.fan_outs, options.fan_outs);
  EXPECT_EQ(result.unfinished, 0u);
  EXPECT_EQ(result.failed_calls, 0u);
  EXPECT_EQ(result.bottleneck.dropped_packets, 0);
  EXPECT_EQ(result.other_drops, 0);
  EXPECT_EQ(result.retransmission_timeouts, 0);
  EXPECT_THAT(result.breaches, ::testing::IsEmpty());
}

// The reference for all other tests: without a schedule the same port must lose packets.
TEST(IncastTest, UnscheduledCollapses) {
  const IncastResult result = Play(SmallPort(SchedulePolicy::kUnscheduled));
  EXPECT_EQ(result.fan_outs, 10u);
  EXPECT_GT(result.bottleneck.dropped_packets, 100);
  EXPECT_GT(result.retransmission_timeouts, 10);
  EXPECT_LT(result.goodput_bps, 0.2e9);
}

// Timeouts cause the collapse, so shorter timeouts must shorten it in proportion.
TEST(IncastTest, AShortRetransmissionTimeoutShortensTheCollapse) {
  IncastOptions options = SmallPort(SchedulePolicy::kUnscheduled);
  const double with_200_ms = Play(options).goodput_bps;
  options.network.tcp.rto_min = absl::Milliseconds(1);
  options.network.tcp.delayed_ack = absl::Microseconds(500);
  EXPECT_GT(Play(options).goodput_bps, 5 * with_200_ms);
}

// With equal timeouts, flows that have lost their packets together send them again together.
TEST(IncastTest, RandomTimeoutsSpreadTheRetransmissions) {
  IncastOptions options = SmallPort(SchedulePolicy::kUnscheduled);
  options.workers = 128;
  options.sizes = *Distribution::ParseSizes("fixed:10kb");
  options.network.bits_per_second = 10e9;
  options.network.rtt = absl::Microseconds(20);
  options.network.tcp.variant = "NewReno";
  options.network.tcp.acked_segments = 1;
  options.network.tcp.rto_min = absl::Milliseconds(1);
  options.jitter = std::chrono::microseconds(2);
  options.fan_outs = 2;
  const IncastResult equal = Play(options);
  options.network.tcp.rto_random_share = 0.5;
  const IncastResult random = Play(options);
  EXPECT_GT(random.goodput_bps, 2 * equal.goodput_bps);
  EXPECT_GT(random.retransmission_timeouts, 0);
  options.seed = 2;
  EXPECT_NE(Play(options).fan_out_seconds, random.fan_out_seconds);
}

TEST(IncastTest, GrantsLoseNothingAndFillTheLink) {
  const IncastOptions options = SmallPort(SchedulePolicy::kGrants);
  const IncastResult result = Play(options);
  ExpectLossless(options, result);
  EXPECT_GT(result.link_busy_share, 0.97);
}

TEST(IncastTest, RollingLosesNothingAndFillsTheLinkWhereWorkersDoNotThink) {
  IncastOptions options = SmallPort(SchedulePolicy::kRolling);
  options.sizes = *Distribution::ParseSizes("fixed:10kb");
  options.announced_share = 1;
  const IncastResult result = Play(options);
  ExpectLossless(options, result);
  EXPECT_GT(result.link_busy_share, 0.9);
}

// Three responses fit the buffer, so 16 workers take six slots. A slot is a tick of the timers.
TEST(IncastTest, BatchesTakeASlotForEachTickOfTheTimers) {
  IncastOptions options = SmallPort(SchedulePolicy::kBatches);
  options.workers = 16;
  options.sizes = *Distribution::ParseSizes("fixed:10000");
  options.announced_share = 1;
  options.link_thread.timer_step = std::chrono::milliseconds(1);
  options.link_thread.timers_late = std::chrono::microseconds(20);
  options.timer_jitter = absl::Microseconds(20);
  const IncastResult result = Play(options);
  ExpectLossless(options, result);
  EXPECT_NEAR(result.goodput_bps, 8 * 16 * 10'000 / 6e-3, 0.02 * result.goodput_bps);
}

// Two fan-outs of 64 at a time provide enough requests while all workers think for 2 ms.
TEST(IncastTest, GrantsKeepTheLinkBusyWhileWorkersThinkAndRollingDoesNot) {
  IncastOptions options = SmallPort(SchedulePolicy::kGrants);
  options.workers = 64;
  options.sizes = *Distribution::ParseSizes("fixed:10kb");
  options.think = *Distribution::ParseTimes("fixed:2ms");
  options.concurrency = 2;
  options.announced_share = 1;
  const IncastResult grants = Play(options);
  ExpectLossless(options, grants);
  EXPECT_GT(grants.link_busy_share, 0.9);
  options.policy = SchedulePolicy::kRolling;
  const IncastResult rolling = Play(options);
  ExpectLossless(options, rolling);
  EXPECT_LT(rolling.link_busy_share, 0.3);
}

TEST(IncastTest, GrantsLoseNothingAtAHundredGigabit) {
  IncastOptions options = SmallPort(SchedulePolicy::kGrants);
  options.network.bits_per_second = 100e9;
  options.network.rtt = absl::Microseconds(20);
  options.network.buffer_bytes = 512 * 1024;
  options.concurrency = 4;
  options.warm_up = 4;
  const IncastResult result = Play(options);
  ExpectLossless(options, result);
  EXPECT_GT(result.link_busy_share, 0.97);
}

// 15 workers, one on each other host of a fat tree of arity 4. Each port has 32 KB.
TEST(IncastTest, GrantsLoseNothingInAFatTree) {
  IncastOptions options = SmallPort(SchedulePolicy::kGrants);
  options.workers = 15;
  options.network.fat_tree_arity = 4;
  const IncastResult grants = Play(options);
  ExpectLossless(options, grants);
  EXPECT_GT(grants.link_busy_share, 0.9);
  options.policy = SchedulePolicy::kUnscheduled;
  options.watch_wire = false;
  EXPECT_GT(Play(options).retransmission_timeouts, 0);
}

TEST(IncastTest, DctcpMarksInsteadOfDropping) {
  IncastOptions options = SmallPort(SchedulePolicy::kUnscheduled);
  options.workers = 4;
  options.sizes = *Distribution::ParseSizes("fixed:200kb");
  options.network.buffer_bytes = 256 * 1024;
  options.network.mark_above_bytes = 30'000;
  options.network.tcp.variant = "Dctcp";
  options.network.tcp.ecn = true;
  const IncastResult result = Play(options);
  EXPECT_EQ(result.bottleneck.dropped_packets, 0);
  EXPECT_GT(result.bottleneck.marked_packets, 0);
  EXPECT_LT(result.bottleneck.most_bytes, 200'000);
}

// With 128 workers each small window is marked repeatedly.
TEST(IncastTest, DctcpGoesOnWhereAllIsMarked) {
  IncastOptions options = SmallPort(SchedulePolicy::kUnscheduled);
  options.workers = 128;
  options.sizes = *Distribution::ParseSizes("fixed:10kb");
  options.load = 0.5;
  options.network.bits_per_second = 10e9;
  options.network.buffer_bytes = 512 * 1024;
  options.network.rtt = absl::Microseconds(50);
  options.network.mark_above_bytes = 97 * 1024;
  options.network.tcp.variant = "Dctcp";
  options.network.tcp.ecn = true;
  options.network.tcp.acked_segments = 1;
  options.longest = absl::Seconds(10);
  const IncastResult result = Play(options);
  EXPECT_EQ(result.fan_outs, options.fan_outs);
  EXPECT_EQ(result.unfinished, 0u);
  EXPECT_GT(result.bottleneck.marked_packets, 1000);
}

// The budget leaves half of the buffer to other traffic through the same port, in messages of 10 KB.
TEST(IncastTest, TrafficOfOthersIsNotHurtByGrantsThatLeaveItRoom) {
  IncastOptions options = SmallPort(SchedulePolicy::kGrants);
  options.budget_bytes = 16 * 1024;
  options.victim.emplace();
  options.victim->mean_pause = std::chrono::milliseconds(2);
  options.fan_outs = 5;
  const IncastResult grants = Play(options);
  ExpectLossless(options, grants);
  ASSERT_GT(grants.victim_seconds.size(), 10u);
  EXPECT_LT(Percentile(grants.victim_seconds, 1), 0.001);
  options.policy = SchedulePolicy::kUnscheduled;
  options.budget_bytes = 0;
  options.watch_wire = false;
  EXPECT_GT(Percentile(Play(options).victim_seconds, 1), 0.1) << "a victim of the collapse waits for timeouts, too";
}

// 64 workers with 10 KB each, through a port of 100 Mbit/s with 32 KB. Their protocol is unknown to the client.
IncastOptions Tunnels(SchedulePolicy policy) {
  IncastOptions options = SmallPort(policy);
  options.network.bits_per_second = 100e6;
  options.workers = 64;
  options.sizes = *Distribution::ParseSizes("fixed:10kb");
  options.tunnels = true;
  options.watch_wire = false;
  return options;
}

void ExpectNoSurprise(const IncastOptions& options, const IncastResult& result) {
  ExpectLossless(options, result);
  EXPECT_EQ(result.surprises, 0);
}

// `rolling` is told the sizes of the calls. HTTP/2 and gRPC add 1 % to them.
double GoodputOfRolling(IncastOptions options) {
  options.tunnels = false;
  options.policy = SchedulePolicy::kRolling;
  options.announced_share = 1;
  return Play(options).goodput_bps;
}

TEST(IncastTest, TunnelsLoseNothingAndAreAsFastAsCallsOfKnownSizes) {
  IncastOptions options = Tunnels(SchedulePolicy::kGrants);
  const IncastResult tunnels = Play(options);
  ExpectNoSurprise(options, tunnels);
  EXPECT_GT(tunnels.goodput_bps, 0.99 * GoodputOfRolling(options));
  options.policy = SchedulePolicy::kUnscheduled;
  const IncastResult without_turns = Play(options);
  EXPECT_GT(without_turns.bottleneck.dropped_packets, 1000);
  EXPECT_LT(10 * without_turns.goodput_bps, tunnels.goodput_bps);
}

// One window fills a third of the budget, and moves for 140 turns.
TEST(IncastTest, ATunnelAloneFillsTheLink) {
  IncastOptions options = Tunnels(SchedulePolicy::kRolling);
  options.workers = 1;
  options.sizes = *Distribution::ParseSizes("fixed:2mb");
  options.fan_outs = 3;
  const IncastResult result = Play(options);
  ExpectNoSurprise(options, result);
  EXPECT_GT(result.link_busy_share, 0.98);
}

TEST(IncastTest, LongResponsesOfTunnelsTakeTurns) {
  IncastOptions options = Tunnels(SchedulePolicy::kGrants);
  options.workers = 16;
  options.sizes = *Distribution::ParseSizes("fixed:200kb");
  options.fan_outs = 3;
  const IncastResult result = Play(options);
  ExpectNoSurprise(options, result);
  EXPECT_GT(result.link_busy_share, 0.99);
}

TEST(IncastTest, TunnelsFillAGigabit) {
  IncastOptions options = Tunnels(SchedulePolicy::kGrants);
  options.network.bits_per_second = 1e9;
  options.network.buffer_bytes = 128 * 1024;
  options.fan_outs = 20;
  const IncastResult result = Play(options);
  ExpectNoSurprise(options, result);
  EXPECT_GT(result.goodput_bps, 0.98 * GoodputOfRolling(options));
}

// A worker that thinks holds its window. 21 windows of one packet fit the buffer, and 10 of two.
TEST(IncastTest, ManyWorkersOfTunnelsThinkAtTheSameTime) {
  IncastOptions options = Tunnels(SchedulePolicy::kGrants);
  options.think = *Distribution::ParseTimes("fixed:10ms");
  options.jitter = std::chrono::milliseconds(1);
  options.fan_outs = 5;
  const IncastResult result = Play(options);
  ExpectNoSurprise(options, result);
  EXPECT_GT(result.link_busy_share, 0.65);
}

// Returns a percentile of the slowdown of the smaller or the larger half of all messages.
double SlowdownOfHalf(const IncastOptions& options, const IncastResult& result, bool smaller, double p) {
  std::vector<double> sizes;
  for (const auto& time : result.times) sizes.push_back(static_cast<double>(time.bytes));
  const double median = Percentile(sizes, 0.5);
  std::vector<double> slowdowns;
  for (const auto& time : result.times) {
    if ((static_cast<double>(time.bytes) <= median) != smaller) continue;
    slowdowns.push_back(time.seconds / IdleSeconds(options, time.bytes));
  }
  return Percentile(slowdowns, p);
}

// Messages of Homa's W4, each from one worker at random.
TEST(IncastTest, ShortMessagesPassLongOnes) {
  IncastOptions options = SmallPort(SchedulePolicy::kGrants);
  options.sizes = *Distribution::ParseSizes("homa-w4");
  options.asked = 1;
  options.load = 0.8;
  options.fan_outs = 200;
  const IncastResult shortest = Play(options);
  ExpectLossless(options, shortest);
  options.shortest_first = false;
  const IncastResult oldest = Play(options);
  ExpectLossless(options, oldest);
  EXPECT_LT(5 * SlowdownOfHalf(options, shortest, true, 0.99), SlowdownOfHalf(options, oldest, true, 0.99));
  EXPECT_LT(SlowdownOfHalf(options, shortest, false, 0.99), 1.5 * SlowdownOfHalf(options, oldest, false, 0.99));
}

// In the idle network a message takes the time that its slowdown is based on.
TEST(IncastTest, AMessageAloneHasASlowdownOfOne) {
  IncastOptions options = SmallPort(SchedulePolicy::kUnscheduled);
  options.workers = 2;
  options.asked = 1;
  options.sizes = *Distribution::ParseSizes("fixed:10kb");
  options.load = 0.001;
  const IncastResult result = Play(options);
  EXPECT_NEAR(SlowdownOfHalf(options, result, true, 0.5), 1, 0.05);
}

TEST(IncastTest, GrantsLoseNothingIfFanOutsArriveTogether) {
  IncastOptions options = SmallPort(SchedulePolicy::kGrants);
  options.load = 0.5;
  options.burst = 4;
  options.warm_up = 4;
  options.fan_outs = 12;
  ExpectLossless(options, Play(options));
}

// The ports of four aggregators share 128 KB. One alone may hold 64 KB, and four 26 KB each.
TEST(IncastTest, NeighboursThatShareMemoryNeedRoomForEachOther) {
  IncastOptions options = SmallPort(SchedulePolicy::kGrants);
  options.network.buffer_bytes = 128 * 1024;
  options.network.shared_alpha = 1;
  options.budget_bytes = 64 * 1024;
  options.fan_outs = 3;
  ExpectLossless(options, Play(options));
  options.aggregators = 8;
  EXPECT_GT(Play(options).bottleneck.dropped_packets, 0);
  options.aggregators = 4;
  options.budget_bytes = 26 * 1024;
  options.neighbour_pause = std::chrono::milliseconds(10);
  const IncastResult enough = Play(options);
  EXPECT_EQ(enough.bottleneck.dropped_packets, 0);
  EXPECT_EQ(enough.retransmission_timeouts, 0);
  EXPECT_THAT(enough.breaches, ::testing::IsEmpty());
  EXPECT_GT(enough.fan_outs, options.fan_outs) << "the neighbours have fan-outs, too";
  EXPECT_GT(enough.first_goodput_bps, 1.2 * enough.goodput_bps) << "the neighbours pause";
}

// Eight hosts, each an aggregator and a worker. Granted bytes wait where several grants meet at the uplink of a sender.
TEST(IncastTest, GrantsLoseNothingBetweenHostsThatAreAggregatorAndWorker) {
  IncastOptions options = SmallPort(SchedulePolicy::kGrants);
  options.workers = 8;
  options.aggregators = 8;
  options.peers = true;
  options.asked = 3;
  options.concurrency = 2;
  options.fan_outs = 5;
  const IncastResult result = Play(options);
  EXPECT_GT(result.fan_outs, 5 * options.fan_outs);
  EXPECT_EQ(result.failed_calls, 0u);
  EXPECT_EQ(result.bottleneck.dropped_packets, 0);
  EXPECT_EQ(result.retransmission_timeouts, 0);
  EXPECT_THAT(result.breaches, ::testing::IsEmpty());
  EXPECT_GT(result.stranded_bytes, 0);
  EXPECT_LT(result.stranded_bytes, result.granted_bytes);
  EXPECT_GT(result.link_busy_share, 0.5);
}

TEST(IncastTest, WritesOfLateHostsStayInTheirOrder) {
  IncastOptions options = SmallPort(SchedulePolicy::kGrants);
  options.network.bits_per_second = 1e10;
  options.network.buffer_bytes = 512 * 1024;
  options.network.rtt = absl::Microseconds(50);
  options.workers = 128;
  options.jitter = std::chrono::milliseconds(1);
  options.link_thread.timers_late = std::chrono::milliseconds(10);
  options.announced_share = 0.769;
  options.fan_outs = 2;
  for (options.seed = 1; options.seed <= 3; ++options.seed) {
    EXPECT_EQ(Play(options).failed_calls, 0u) << "seed " << options.seed;
  }
}

TEST(IncastTest, ASeedReplaysExactly) {
  IncastOptions options = SmallPort(SchedulePolicy::kUnscheduled);
  options.sizes = *Distribution::ParseSizes("log:1kb-100kb");
  options.think = *Distribution::ParseTimes("exp:1ms");
  options.jitter = std::chrono::microseconds(100);
  options.fan_outs = 3;
  const IncastResult first = Play(options);
  const IncastResult second = Play(options);
  EXPECT_EQ(first.events, second.events);
  EXPECT_EQ(first.fan_out_seconds, second.fan_out_seconds);
  options.seed = 2;
  EXPECT_NE(first.fan_out_seconds, Play(options).fan_out_seconds);
}

TEST(IncastTest, RefusesWhatMakesNoSense) {
  IncastOptions options = SmallPort(SchedulePolicy::kGrants);
  options.network.tcp.variant = "Quantum";
  EXPECT_THAT(RunIncast(options).status().message(), ::testing::HasSubstr("no variant \"Quantum\""));
  options = SmallPort(SchedulePolicy::kGrants);
  options.static_cap = 4;
  EXPECT_THAT(RunIncast(options).status().message(), ::testing::HasSubstr("static_cap"));
  options = SmallPort(SchedulePolicy::kGrants);
  options.tunnels = true;
  EXPECT_THAT(RunIncast(options).status().message(), ::testing::HasSubstr("not for tunnels"));
  options = SmallPort(SchedulePolicy::kGrants);
  options.asked = 33;
  EXPECT_THAT(RunIncast(options).status().message(), ::testing::HasSubstr("asked: 33 must be at most 32"));
  options = SmallPort(SchedulePolicy::kGrants);
  options.peers = true;
  EXPECT_THAT(RunIncast(options).status().message(), ::testing::HasSubstr("must be equal and at least 2"));
  options = SmallPort(SchedulePolicy::kGrants);
  options.network.fat_tree_arity = 4;
  EXPECT_THAT(RunIncast(options).status().message(), ::testing::HasSubstr("an arity of 4 has 16 hosts, and 33"));
}

}  // namespace
}  // namespace sluice
