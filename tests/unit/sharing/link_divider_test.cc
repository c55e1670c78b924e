#include "lib/sharing/link_divider.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/sharing/share_clients.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""us;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(LinkDividerTest, OneAloneHoldsAllAndKeepsItWhileIdle) {
  Clients clients;
  EXPECT_THAT(clients.Join(At(0ms), 1, 1, Busy()), ElementsAre(Pair(1, kBudget)));
  EXPECT_THAT(clients.Report(At(1ms), 1, {}), IsEmpty());
  EXPECT_EQ(clients.lease(1), kBudget);
}

TEST(LinkDividerTest, AnotherOneGetsItsShareWhenTheFirstHasDrained) {
  Clients clients;
  clients.Join(At(0ms), 1, 3, Busy());
  EXPECT_THAT(clients.Join(At(10ms), 2, 1, Busy()), ElementsAre(Pair(1, 24'000)));
  // The client has acknowledged the lease, and has not drained to it yet.
  EXPECT_THAT(clients.Report(At(11ms), 1, Busy(32'000)), IsEmpty());
  EXPECT_THAT(clients.Report(At(12ms), 1, Busy(29'000)), ElementsAre(Pair(2, 3000)));
  EXPECT_THAT(clients.Report(At(13ms), 1, Busy(20'000)), ElementsAre(Pair(2, 8000)));
}

TEST(LinkDividerTest, WhatALateClientMayStillGoByIsNotFree) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, Busy());
  const uint64_t before = clients.told(1).id;
  clients.Join(At(10ms), 2, 1, Busy());
  EXPECT_THAT(clients.Late(At(11ms), 1, {.acknowledged = before, .limit_bytes = kBudget, .demand_bytes = kLots}),
              IsEmpty());
  EXPECT_EQ(clients.lease(2), 0);
  EXPECT_THAT(clients.Report(At(12ms), 1, Busy()), ElementsAre(Pair(2, 16'000)));
}

// The lease has expired at the client, and a message that prolongs it is on its way.
TEST(LinkDividerTest, ALeaseThatMayComeBackToLifeIsNotFree) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, Busy());
  const uint64_t id = clients.told(1).id;
  clients.Late(At(90ms), 1, {.acknowledged = id, .limit_bytes = 0, .demand_bytes = kLots, .need_bytes = 1000});
  clients.Join(At(91ms), 2, 1, Busy());
  EXPECT_EQ(clients.lease(1), 16'000);
  EXPECT_EQ(clients.lease(2), 0);
  EXPECT_EQ(clients.shares().entitled_bytes(), kBudget);
}

TEST(LinkDividerTest, WhatOneDoesNotWantIsSpread) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, {.demand_bytes = 4000, .need_bytes = 1000});
  EXPECT_EQ(clients.lease(1), kBudget);
  clients.Join(At(1ms), 2, 1, Busy());
  clients.Report(At(2ms), 1, {.demand_bytes = 4000, .need_bytes = 1000});
  EXPECT_EQ(clients.lease(1), 4000);
  EXPECT_EQ(clients.lease(2), 28'000);
}

TEST(LinkDividerTest, SharesFollowDemandAtOnce) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, Busy());
  clients.Join(At(1ms), 2, 1, Busy());
  clients.Report(At(2ms), 1, Busy());
  EXPECT_EQ(clients.lease(2), 16'000);
  EXPECT_THAT(clients.Report(At(3ms), 2, {}), ElementsAre(Pair(2, 0)));
  EXPECT_THAT(clients.Report(At(4ms), 2, {}), ElementsAre(Pair(1, kBudget)));
}

LinkDivider::Options PausingOptions() {
  LinkDivider::Options options = TestOptions();
  options.division_pause = 250us;
  return options;
}

TEST(LinkDividerTest, EventsThatComeCloseTogetherShareOneDivision) {
  Clients clients(PausingOptions());
  clients.Join(At(0ms), 1);
  EXPECT_THAT(clients.Report(At(1ms), 1, Busy()), ElementsAre());
  EXPECT_THAT(clients.Join(At(1200us), 2, 1, Busy()), IsEmpty());
  EXPECT_EQ(clients.messages(), 0u);
  EXPECT_EQ(clients.shares().NextTimer(), At(1500us));
  EXPECT_THAT(clients.Timer(At(1400us)), IsEmpty());
  EXPECT_EQ(clients.shares().NextTimer(), At(1500us));
  EXPECT_THAT(clients.Timer(At(1500us)), ElementsAre(Pair(1, 16'000)));
  EXPECT_THAT(clients.Report(At(1600us), 1, Busy(10'000)), IsEmpty());
  EXPECT_THAT(clients.Report(At(1700us), 1, {}), IsEmpty());
  EXPECT_THAT(clients.Timer(At(2000us)), UnorderedElementsAre(Pair(1, 0), Pair(2, 16'000)));
}

TEST(LinkDividerTest, AnEventAfterThePauseDividesAtOnce) {
  Clients clients(PausingOptions());
  clients.Join(At(0ms), 1, 1, Busy());
  EXPECT_THAT(clients.Join(At(10ms), 2, 1, Busy()), ElementsAre(Pair(1, 16'000)));
  EXPECT_EQ(clients.shares().NextTimer(), At(100ms));
  EXPECT_THAT(clients.Report(At(10'500us), 1, Busy()), ElementsAre(Pair(2, 16'000)));
}

TEST(LinkDividerTest, ALeaseIsProlongedDuringThePause) {
  Clients clients(PausingOptions());
  clients.Join(At(0ms), 1, 1, Busy());
  clients.Join(At(49'900us), 2, 1, {});
  clients.Report(At(50ms), 1, Busy());
  EXPECT_EQ(clients.messages(), 0u);  // its lease was sent 0.1 ms ago, with the new safe share
  clients.Report(At(75ms), 2, {});
  clients.Report(At(75'100us), 1, Busy());
  EXPECT_EQ(clients.messages(), 1u);
  EXPECT_EQ(clients.shares().NextTimer(), At(75'500us));
}

// The lease ends during the pause after the division for another event.
TEST(LinkDividerTest, WhatEndsDuringThePauseIsDividedAfterIt) {
  Clients clients(PausingOptions());
  clients.Join(At(0ms), 1, 1, Busy());
  clients.Join(At(1ms), 2, 1, Busy());
  EXPECT_THAT(clients.Report(At(99'900us), 2, Busy()), IsEmpty());
  EXPECT_THAT(clients.Timer(At(100ms)), IsEmpty());
  EXPECT_TRUE(clients.shares().State(1).expired);
  EXPECT_EQ(clients.shares().NextTimer(), At(100'400us));
  EXPECT_EQ(clients.shares().expirations(), 1);
  EXPECT_THAT(clients.Timer(At(105ms)), ElementsAre(Pair(2, kBudget)));
}

TEST(LinkDividerTest, ALeaseIsNothingOrEnoughForTheNextCall) {
  Clients clients;
  for (uint64_t client = 1; client <= 4; ++client) clients.Join(At(0ms), client, 1, Busy(0, 10'500));
  for (int round = 0; round < 3; ++round) {
    for (uint64_t client = 1; client <= 4; ++client) clients.Report(At(1ms), client, Busy(0, 10'500));
  }
  int served = 0;
  for (uint64_t client = 1; client <= 4; ++client) {
    EXPECT_TRUE(clients.lease(client) == 0 || clients.lease(client) >= 10'500) << clients.lease(client);
    served += clients.lease(client) > 0 ? 1 : 0;
  }
  EXPECT_EQ(served, 3);
}

TEST(LinkDividerTest, OneWhoseCallTakesTheWholeLinkGetsItInItsTurn) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, Busy());
  clients.Join(At(0ms), 2, 1, Busy(0, kBudget));
  int64_t received = 0;
  TimePoint now = At(1ms);
  for (; clients.lease(2) == 0 && now < At(1000ms); now += 1ms) {
    ShareReport report = Busy(clients.lease(1));
    report.received_bytes = received += clients.lease(1);
    clients.Report(now, 1, report);
    clients.Report(now, 1, {.demand_bytes = kLots, .need_bytes = 1000, .received_bytes = received});
    clients.Report(now, 2, Busy(0, kBudget));
  }
  EXPECT_EQ(clients.lease(2), kBudget);
  EXPECT_EQ(clients.lease(1), 0);
  EXPECT_LT(now, At(20ms));
}

TEST(LinkDividerTest, AClientThatIsGoneDrains) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, Busy());
  clients.Join(At(1ms), 2, 1, Busy());
  EXPECT_THAT(clients.Leave(At(2ms), 1), IsEmpty());
  EXPECT_EQ(clients.shares().draining_bytes(), kBudget);
  EXPECT_EQ(clients.shares().NextTimer(), At(7ms));
  EXPECT_THAT(clients.Timer(At(7ms)), ElementsAre(Pair(2, kBudget)));
  EXPECT_EQ(clients.shares().draining_bytes(), 0);
}

TEST(LinkDividerTest, OneThatIsNotHeardOfLosesItsLeaseAndMayComeBack) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, Busy());
  clients.Join(At(50ms), 2, 1, Busy());
  EXPECT_EQ(clients.shares().NextTimer(), At(100ms));
  EXPECT_THAT(clients.Timer(At(100ms)), IsEmpty());
  EXPECT_TRUE(clients.shares().State(1).expired);
  EXPECT_EQ(clients.shares().State(1).expirations, 1);
  EXPECT_THAT(clients.Report(At(104ms), 2, Busy()), IsEmpty());
  EXPECT_THAT(clients.Timer(At(105ms)), ElementsAre(Pair(2, kBudget)));
  // The client's lease has ended by its own clock, too.
  EXPECT_THAT(clients.Late(At(110ms), 1, Busy()), UnorderedElementsAre(Pair(1, 0), Pair(2, 16'000)));
  EXPECT_FALSE(clients.shares().State(1).expired);
  EXPECT_THAT(clients.Report(At(111ms), 2, Busy()), ElementsAre(Pair(1, 16'000)));
}

// The client reports its bytes in flight from before it stopped, and all these bytes were given to the other client.
TEST(LinkDividerTest, WhatOneThatComesBackStillHasInFlightIsNoLease) {
  Clients clients;
  clients.Join(At(0ms), 1);
  clients.Report(At(1ms), 1, {.demand_bytes = kLots, .in_flight_bytes = 16'000, .need_bytes = 8000});
  clients.Join(At(150ms), 2);
  clients.Timer(At(160ms));
  EXPECT_THAT(clients.Report(At(161ms), 2, {.demand_bytes = kLots, .in_flight_bytes = 32'000, .need_bytes = 8000}),
              IsEmpty());
  const ShareReport back{.demand_bytes = kLots, .in_flight_bytes = 16'000, .need_bytes = 8000};
  EXPECT_THAT(clients.Late(At(162ms), 1, back), UnorderedElementsAre(Pair(1, 0), Pair(2, 16'000)));
}

TEST(LinkDividerTest, AReportProlongsALeaseAndSaysSoNowAndThen) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, Busy());
  clients.Report(At(24ms), 1, Busy());
  EXPECT_EQ(clients.messages(), 0u);
  clients.Report(At(25ms), 1, Busy());
  EXPECT_EQ(clients.messages(), 1u);
  EXPECT_EQ(clients.told(1).id, 1u);
  EXPECT_EQ(clients.shares().NextTimer(), At(125ms));
}

TEST(LinkDividerTest, SmallDifferencesAreNotWorthAMessage) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, {.demand_bytes = 8000, .need_bytes = 1000});
  clients.Join(At(0ms), 2, 1, Busy());
  clients.Report(At(1ms), 1, {.demand_bytes = 8000, .need_bytes = 1000});
  ASSERT_EQ(clients.lease(1), 8000);
  clients.Report(At(2ms), 1, {.demand_bytes = 7500, .need_bytes = 1000});
  EXPECT_EQ(clients.messages(), 0u);
  EXPECT_EQ(clients.lease(1), 8000);
}

TEST(LinkDividerTest, ButTheWholeLinkIs) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, Busy());
  clients.Join(At(0ms), 2, 1, Busy());
  clients.Report(At(1ms), 1, Busy(900));
  clients.Late(At(2ms), 2, {.acknowledged = clients.told(2).id, .limit_bytes = 500, .in_flight_bytes = 500});
  clients.Report(At(3ms), 2, {.in_flight_bytes = 500});
  ASSERT_EQ(clients.lease(1), kBudget - 500);
  clients.Report(At(4ms), 2, {});
  EXPECT_EQ(clients.lease(1), kBudget);
}

TEST(LinkDividerTest, SafeSharesAreByWeightAmongAllAndFitTheBudget) {
  Clients clients;
  clients.Join(At(0ms), 1, 3, Busy());
  EXPECT_EQ(clients.told(1).safe_bytes, kBudget);
  clients.Join(At(1ms), 2, 1, {});
  EXPECT_EQ(clients.told(1).safe_bytes, 24'000);
  EXPECT_EQ(clients.told(2).safe_bytes, 0);  // the first client may not have received its smaller share yet
  clients.Report(At(2ms), 1, Busy());
  EXPECT_EQ(clients.told(2).safe_bytes, 8000);
}

TEST(LinkDividerTest, NothingIsDividedUntilThoseOfTheLastDaemonHaveComeBack) {
  LinkDivider::Options options = TestOptions();
  options.start_grace = 50ms;
  Clients clients(options);
  clients.Join(At(0ms), 1, 1, {});
  EXPECT_THAT(clients.Late(At(1ms), 1, {.limit_bytes = 4000, .demand_bytes = kLots, .need_bytes = 1000}), IsEmpty());
  EXPECT_EQ(clients.shares().NextTimer(), At(50ms));
  EXPECT_THAT(clients.Timer(At(50ms)), ElementsAre(Pair(1, kBudget)));
}

TEST(LinkDividerTest, ASmallerBudgetShrinksLeasesAndALargerOneGrowsThem) {
  Clients clients;
  clients.Join(At(0ms), 1, 1, Busy());
  EXPECT_THAT(clients.SetBudget(At(1ms), 16'000), ElementsAre(Pair(1, 16'000)));
  EXPECT_THAT(clients.Report(At(2ms), 1, Busy(30'000)), IsEmpty());
  EXPECT_THAT(clients.SetBudget(At(3ms), 40'000), ElementsAre(Pair(1, 40'000)));
}

ShareReport Block(uint64_t block, std::chrono::nanoseconds age, int64_t in_flight_bytes = 0) {
  ShareReport report = Busy(in_flight_bytes);
  report.oldest_block = block;
  report.oldest_block_age = age;
  return report;
}

TEST(FifoTest, OneBlockAtATimeInTheOrderOfAsking) {
  LinkDivider::Options options = TestOptions();
  options.mode = SharingMode::kFifo;
  Clients clients(options);
  EXPECT_THAT(clients.Join(At(10ms), 1, 1, Block(1, 1ms)), ElementsAre(Pair(1, kBudget)));
  clients.Join(At(20ms), 3, 1, Block(1, 2ms));  // requested at 18 ms
  clients.Join(At(21ms), 2, 1, Block(1, 5ms));  // requested at 16 ms; its report was late
  EXPECT_EQ(clients.lease(2), 0);
  EXPECT_EQ(clients.lease(3), 0);
  // The first client's next block was requested at 19 ms: the other clients come first.
  clients.Report(At(30ms), 1, Block(2, 11ms, 30'000));
  EXPECT_EQ(clients.lease(1), 0);
  clients.Report(At(31ms), 1, Block(2, 12ms));
  EXPECT_EQ(clients.lease(2), kBudget);
  clients.Report(At(40ms), 2, {});
  clients.Report(At(41ms), 2, {});
  EXPECT_EQ(clients.lease(3), kBudget);
  clients.Report(At(50ms), 3, Block(2, 1ms));
  clients.Report(At(51ms), 3, Block(2, 2ms));
  EXPECT_EQ(clients.lease(1), kBudget);
  EXPECT_EQ(clients.lease(3), 0);
}

TEST(FifoTest, ABlockKeepsTheLinkUntilItEnds) {
  LinkDivider::Options options = TestOptions();
  options.mode = SharingMode::kFifo;
  Clients clients(options);
  clients.Join(At(0ms), 1, 1, Block(7, 1ms));
  clients.Join(At(1ms), 2, 1, Block(1, 90ms));
  for (int i = 2; i < 50; ++i) {
    ShareReport report = Block(7, i * 1ms, 1000);
    report.received_bytes = i * 100'000;
    clients.Report(At(i * 1ms), 1, report);
    ASSERT_EQ(clients.lease(1), kBudget);
    ASSERT_EQ(clients.lease(2), 0);
  }
}

TEST(ValidateTest, NamesTheField) {
  LinkDivider::Options options = TestOptions();
  EXPECT_EQ(LinkDivider::Validate(options), absl::OkStatus());
  options.budget_bytes = 0;
  EXPECT_EQ(LinkDivider::Validate(options), absl::InvalidArgumentError("budget_bytes: 0 is below 1"));
  options = TestOptions();
  options.lease_time = 0ms;
  EXPECT_EQ(LinkDivider::Validate(options), absl::InvalidArgumentError("lease_time (ns): 0 is below 1"));
}

TEST(SharingModeTest, NamesAreThoseOfFlags) {
  for (const SharingMode mode : {SharingMode::kWeighted, SharingMode::kFifo}) {
    EXPECT_EQ(ParseSharingMode(SharingModeName(mode)).value(), mode);
  }
  EXPECT_EQ(ParseSharingMode("lifo").status(),
            absl::InvalidArgumentError("mode: \"lifo\" is not known; use weighted or fifo"));
}

// A client with traffic in two classes, whose leases have weights.
ShareReport BusyInBoth(int64_t in_flight_bytes = 0) {
  ShareReport report = Busy(in_flight_bytes);
  report.classes = {{.weight = 3, .demand_bytes = kLots}, {.weight = 1, .demand_bytes = kLots}};
  return report;
}

TEST(LinkDividerTest, AClientThatIsNotHeardOfGetsNoLease) {
  Clients clients;
  clients.shares().Join(At(0ms), 1, 1, {"interactive", "batch"});
  clients.Report(At(0ms), 1, BusyInBoth());
  ASSERT_EQ(clients.told(1).class_weights.size(), 2u);
  clients.Timer(At(100ms));
  ASSERT_TRUE(clients.shares().State(1).expired);
  EXPECT_EQ(clients.messages(), 0u);
}

}  // namespace
}  // namespace sluice
