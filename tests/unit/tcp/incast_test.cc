#include "lib/tcp/incast.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace sluice {
namespace {

using boost::asio::ip::make_address;

constexpr size_t kConnectionsOfAHost = 8;

boost::asio::ip::address HostOf(size_t connection) {
  return make_address("10.0.0." + std::to_string(2 + connection / kConnectionsOfAHost));
}

// The responses of 64 connections under load.
TcpFlow Incoming() {
  return {.connections = 64,
          .hosts = 8,
          .bytes = 64'000'000,
          .bursts = 6400,
          .most_at_once = 40,
          .busy_rounds = 900,
          .broad_rounds = 800,
          .peak_bytes_per_second = 1e7};
}

// The responses of a worker's host.
TcpFlow Outgoing() {
  TcpFlow flow = Incoming();
  flow.to = make_address("10.0.0.1");
  flow.connections = 8;
  flow.hosts = 1;
  return flow;
}

void AddStall(TcpFlow& flow, absl::Duration begin, size_t connection, uint64_t flow_bytes = 0) {
  flow.stalls.push_back({.begin = begin,
                         .seen = begin + absl::Milliseconds(160),
                         .end = begin + absl::Milliseconds(210),
                         .flow_bytes = flow_bytes,
                         .connection = connection,
                         .host = HostOf(connection)});
}

// The connections with these numbers stall within 30 ms, every 0.5 s.
void AddMoments(TcpFlow& flow, int moments, size_t begin, size_t end, uint64_t flow_bytes = 0) {
  for (int moment = 0; moment < moments; ++moment) {
    for (size_t i = begin; i < end; ++i) {
      AddStall(flow, moment * absl::Milliseconds(500) + static_cast<double>(i - begin) * absl::Milliseconds(30) / 64, i,
               flow_bytes);
    }
  }
}

// The connections with these numbers wait this long for their responses, every second.
void AddWaits(TcpFlow& flow, int moments, size_t begin, size_t end, absl::Duration time) {
  for (int moment = 0; moment < moments; ++moment) {
    for (size_t i = begin; i < end; ++i) {
      flow.long_waits.push_back({.begin = absl::Seconds(moment),
                                 .seen = absl::Seconds(moment) + time,
                                 .end = absl::Seconds(moment) + time,
                                 .connection = i,
                                 .host = HostOf(i)});
    }
  }
}

void ExpectVerdict(const FlowFinding& finding, IncastVerdict verdict, IncastReason reason) {
  EXPECT_STREQ(IncastVerdictName(finding.verdict), IncastVerdictName(verdict));
  EXPECT_STREQ(IncastReasonName(finding.reason), IncastReasonName(reason));
}

TEST(DiagnoseFlowTest, ManyConnectionsThatStallTogetherAreIncast) {
  TcpFlow flow = Incoming();
  AddMoments(flow, 10, 5, 35);
  const FlowFinding finding = DiagnoseFlow(flow);
  ExpectVerdict(finding, IncastVerdict::kYes, IncastReason::kAtOnce);
  EXPECT_EQ(finding.stalled_connections, 30u);
  EXPECT_EQ(finding.moments, 10u);
  EXPECT_EQ(finding.most_stalled, 30u);
  EXPECT_EQ(finding.median_stall, absl::Milliseconds(210));
  EXPECT_EQ(finding.stalled_bytes_per_second, 0);
}

TEST(DiagnoseFlowTest, TwoMomentsMayBeChance) {
  TcpFlow flow = Incoming();
  AddMoments(flow, 2, 5, 9);
  ExpectVerdict(DiagnoseFlow(flow), IncastVerdict::kNotSure, IncastReason::kFewStalls);
}

TEST(DiagnoseFlowTest, NoStallsUnderLoadAreNoIncast) {
  ExpectVerdict(DiagnoseFlow(Incoming()), IncastVerdict::kNo, IncastReason::kNoStalls);
  ExpectVerdict(DiagnoseFlow(Outgoing()), IncastVerdict::kNo, IncastReason::kNoStalls);
}

TEST(DiagnoseFlowTest, TwoStallsAreNoPattern) {
  TcpFlow flow = Incoming();
  AddMoments(flow, 1, 7, 9);
  ExpectVerdict(DiagnoseFlow(flow), IncastVerdict::kNo, IncastReason::kNoStalls);
}

TEST(DiagnoseFlowTest, NoStallsWithoutLoadShowNothing) {
  TcpFlow flow = Incoming();
  flow.broad_rounds = 19;  // never three at once: there is no fan-out
  ExpectVerdict(DiagnoseFlow(flow), IncastVerdict::kNotSure, IncastReason::kLittleTraffic);
  TcpFlow worker = Outgoing();
  worker.busy_rounds = 19;
  ExpectVerdict(DiagnoseFlow(worker), IncastVerdict::kNotSure, IncastReason::kLittleTraffic);
}

TEST(DiagnoseFlowTest, StallsOfOneHostAreItsOwn) {
  TcpFlow flow = Incoming();
  AddMoments(flow, 10, 0, kConnectionsOfAHost);
  AddStall(flow, absl::Seconds(9), 60);
  const FlowFinding finding = DiagnoseFlow(flow);
  ExpectVerdict(finding, IncastVerdict::kNo, IncastReason::kOneHost);
  EXPECT_EQ(finding.worst_host, make_address("10.0.0.2"));
}

TEST(DiagnoseFlowTest, StallsAtRandomAreNoIncast) {
  TcpFlow flow = Incoming();
  for (size_t i = 0; i < 30; ++i) AddStall(flow, static_cast<double>(i) * absl::Seconds(1), (i * 29) % 64);
  ExpectVerdict(DiagnoseFlow(flow), IncastVerdict::kNo, IncastReason::kOneAtATime);
}

// A lossy path stops each of eight connections every two seconds, so that two of them often stop together by chance.
TEST(DiagnoseFlowTest, FewConnectionsCoincideByChance) {
  int yes = 0;
  constexpr int kRuns = 1000;
  std::mt19937 random(1);
  for (int run = 0; run < kRuns; ++run) {
    TcpFlow flow = Outgoing();
    std::uniform_real_distribution<> seconds(0, 6);
    for (size_t i = 0; i < 24; ++i) AddStall(flow, absl::Seconds(seconds(random)), random() % 8);
    std::sort(flow.stalls.begin(), flow.stalls.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    if (DiagnoseFlow(flow).verdict == IncastVerdict::kYes) ++yes;
  }
  EXPECT_LE(yes, kRuns / 100);
}

// 2 of 64 connections that stall together are no overflow: their losses coincide.
TEST(DiagnoseFlowTest, ManyConnectionsCoincideNowAndThen) {
  TcpFlow flow = Incoming();
  for (size_t i = 0; i < 30; ++i) {
    AddStall(flow, static_cast<double>(i) * absl::Seconds(1), i);
    AddStall(flow, static_cast<double>(i) * absl::Seconds(1) + absl::Milliseconds(40), 63 - i);
  }
  ExpectVerdict(DiagnoseFlow(flow), IncastVerdict::kNo, IncastReason::kOneAtATime);
}

// Single-packet responses of workers that compute: the aggregator sees few of the stalls.
TEST(DiagnoseFlowTest, FewOfManyConnectionsThatStallTogetherAreMoreThanChance) {
  TcpFlow flow = Incoming();
  flow.connections = 400;
  for (int moment = 0; moment < 3; ++moment) {
    for (size_t i = 0; i < 6; ++i) AddStall(flow, moment * absl::Seconds(9), 10 * i);
    AddStall(flow, moment * absl::Seconds(9) + absl::Seconds(4), 7);
  }
  ExpectVerdict(DiagnoseFlow(flow), IncastVerdict::kYes, IncastReason::kAtOnce);
}

TEST(DiagnoseFlowTest, OneMomentAmongStallsAtRandomLeavesADoubt) {
  TcpFlow flow = Incoming();
  for (size_t i = 0; i < 20; ++i) AddStall(flow, static_cast<double>(i) * absl::Seconds(1), i);
  for (size_t i = 0; i < 8; ++i) AddStall(flow, absl::Seconds(25), 8 * i);
  ExpectVerdict(DiagnoseFlow(flow), IncastVerdict::kNotSure, IncastReason::kFewStalls);
}

TEST(DiagnoseFlowTest, ALongQueueKeepsTheLinkBusy) {
  TcpFlow flow = Incoming();
  AddMoments(flow, 10, 5, 35, /*flow_bytes=*/450'000);  // in 50 ms
  const FlowFinding finding = DiagnoseFlow(flow);
  ExpectVerdict(finding, IncastVerdict::kNotSure, IncastReason::kBusyLink);
  EXPECT_NEAR(finding.stalled_bytes_per_second, 9e6, 1);
  AddWaits(flow, 5, 4, 20, absl::Milliseconds(230));
  ExpectVerdict(DiagnoseFlow(flow), IncastVerdict::kNotSure, IncastReason::kBusyLink);
}

TEST(DiagnoseFlowTest, AWorkersHostSeesIncastOnItsConnections) {
  TcpFlow flow = Outgoing();
  AddMoments(flow, 10, 2, 6, /*flow_bytes=*/450'000);
  ExpectVerdict(DiagnoseFlow(flow), IncastVerdict::kYes, IncastReason::kAtOnce);
}

TEST(DiagnoseFlowTest, OneConnectionHasNothingToCompareWith) {
  TcpFlow flow = Outgoing();
  flow.connections = 1;
  AddMoments(flow, 10, 0, 1);
  ExpectVerdict(DiagnoseFlow(flow), IncastVerdict::kNotSure, IncastReason::kFewConnections);
}

TEST(DiagnoseFlowTest, ConnectionsOfOneHostShowNoLastHop) {
  TcpFlow flow = Incoming();
  flow.hosts = 1;
  AddMoments(flow, 10, 0, kConnectionsOfAHost);
  ExpectVerdict(DiagnoseFlow(flow), IncastVerdict::kNotSure, IncastReason::kFewConnections);
}

TEST(DiagnoseFlowTest, ResponsesThatComeLateTogetherLeaveADoubt) {
  TcpFlow flow = Incoming();
  flow.median_wait = absl::Milliseconds(60);
  AddWaits(flow, 5, 4, 20, absl::Milliseconds(265));
  ExpectVerdict(DiagnoseFlow(flow), IncastVerdict::kNotSure, IncastReason::kLateResponses);
}

TEST(DiagnoseFlowTest, ResponsesOfASlowServiceAreNotLate) {
  TcpFlow flow = Incoming();
  flow.median_wait = absl::Milliseconds(260);
  AddWaits(flow, 5, 4, 20, absl::Milliseconds(265));
  ExpectVerdict(DiagnoseFlow(flow), IncastVerdict::kNo, IncastReason::kNoStalls);
}

TEST(DiagnoseFlowTest, WorkersThatAreNowLateNowLaterAreSlow) {
  TcpFlow flow = Incoming();
  flow.median_wait = absl::Milliseconds(60);
  for (const int ms : {255, 300, 370, 420}) AddWaits(flow, 5, 4, 20, absl::Milliseconds(ms));
  std::sort(flow.long_waits.begin(), flow.long_waits.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  ExpectVerdict(DiagnoseFlow(flow), IncastVerdict::kNo, IncastReason::kNoStalls);
}

TEST(DiagnoseFlowTest, ASlowHostIsNotLateTogetherWithOthers) {
  TcpFlow flow = Incoming();
  AddWaits(flow, 5, 0, kConnectionsOfAHost, absl::Milliseconds(213));
  ExpectVerdict(DiagnoseFlow(flow), IncastVerdict::kNo, IncastReason::kNoStalls);
}

void ExpectVerdict(const IncastDiagnosis& diagnosis, IncastVerdict verdict, IncastReason reason) {
  EXPECT_STREQ(IncastVerdictName(diagnosis.verdict), IncastVerdictName(verdict));
  EXPECT_STREQ(IncastReasonName(diagnosis.reason), IncastReasonName(reason));
}

TEST(DiagnoseIncastTest, AnIdleHostShowsNothing) {
  ExpectVerdict(DiagnoseIncast({}, {}), IncastVerdict::kNotSure, IncastReason::kLittleTraffic);
  TcpFlow terminal = Outgoing();
  terminal.busy_rounds = 5;
  const IncastDiagnosis diagnosis = DiagnoseIncast({terminal}, {});
  ExpectVerdict(diagnosis, IncastVerdict::kNotSure, IncastReason::kLittleTraffic);
  EXPECT_TRUE(diagnosis.findings.empty());
}

TEST(DiagnoseIncastTest, ATerminalOverABadPathLeavesNoDoubt) {
  TcpFlow terminal = Outgoing();
  terminal.connections = 1;
  terminal.busy_rounds = 5;
  AddMoments(terminal, 5, 0, 1);
  ExpectVerdict(DiagnoseIncast({Incoming(), terminal}, {}), IncastVerdict::kNo, IncastReason::kNoStalls);
}

TEST(DiagnoseIncastTest, TheWorstFlowDecides) {
  TcpFlow healthy = Outgoing();
  TcpFlow collapsed = Outgoing();
  collapsed.to = make_address("10.0.0.9");
  AddMoments(collapsed, 10, 2, 6);
  TcpFlow idle = Incoming();
  idle.broad_rounds = 0;
  const IncastDiagnosis diagnosis = DiagnoseIncast({idle, healthy, collapsed}, {.rtos = 40});
  ExpectVerdict(diagnosis, IncastVerdict::kYes, IncastReason::kAtOnce);
  ASSERT_EQ(diagnosis.findings.size(), 2u);
  EXPECT_EQ(diagnosis.findings[0].flow.to, collapsed.to);
}

TEST(DiagnoseIncastTest, AHealthyFlowOutweighsATerminal) {
  TcpFlow terminal = Outgoing();
  terminal.busy_rounds = 5;
  ExpectVerdict(DiagnoseIncast({Incoming(), terminal}, {}), IncastVerdict::kNo, IncastReason::kNoStalls);
}

TEST(DiagnoseIncastTest, TimeoutsOfConnectionsThatWereNotSeenLeaveADoubt) {
  ExpectVerdict(DiagnoseIncast({}, {.rtos = 10}), IncastVerdict::kNotSure, IncastReason::kShortConnections);
  ExpectVerdict(DiagnoseIncast({Outgoing()}, {.rtos = 100}), IncastVerdict::kNotSure, IncastReason::kShortConnections);
  ExpectVerdict(DiagnoseIncast({Outgoing()}, {.rtos = 2}), IncastVerdict::kNo, IncastReason::kNoStalls);
}

TEST(DiagnoseIncastTest, NeedlessTimeoutsAreALongQueue) {
  TcpFlow flow = Outgoing();
  AddMoments(flow, 10, 2, 6);
  ExpectVerdict(DiagnoseIncast({flow}, {.rtos = 40, .spurious_rtos = 30}), IncastVerdict::kNotSure,
                IncastReason::kBusyLink);
  ExpectVerdict(DiagnoseIncast({flow}, {.rtos = 40, .spurious_rtos = 5}), IncastVerdict::kYes, IncastReason::kAtOnce);
}

}  // namespace
}  // namespace sluice
