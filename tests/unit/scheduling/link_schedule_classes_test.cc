#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scheduling/grants_options.h"
#include "tests/unit/scheduling/port_simulation.h"
#include "tests/unit/scheduling/schedule_driver.h"

// Tests the classes of traffic: that they share the link by weight, and cost each other nothing else.
namespace sluice::testing {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr size_t kQueries = 0;
constexpr size_t kScan = 1;
constexpr double kQueriesWeight = 3;

ScheduleOptions WithTwoClasses(ScheduleOptions options) {
  options.classes = {{.name = "queries", .weight = kQueriesWeight}, {.name = "scan", .weight = 1}};
  return options;
}

ScheduleOptions TestPortOptions(SchedulePolicy policy) {
  return {.profile = TestPort(), .policy = policy, .budget_bytes = {}};
}

// Returns responses of equal size that are 8 MB together: more than the link delivers in these tests.
std::vector<PortSimulation::Response> Backlog(int64_t bytes, nanoseconds think, uint32_t first_worker) {
  std::vector<PortSimulation::Response> responses(
      static_cast<size_t>((8 << 20) / bytes),
      PortSimulation::Response{.bytes = bytes, .expected_bytes = bytes, .think = think});
  for (size_t i = 0; i < responses.size(); ++i) responses[i].worker = first_worker + static_cast<uint32_t>(i % 500);
  return responses;
}

// The bytes that both classes receive from one time to another.
struct Received {
  double queries = 0;
  double scan = 0;
  double both() const { return queries + scan; }
};
Received ReceivedBetween(PortSimulation& simulation, TimePoint from, TimePoint to) {
  const auto received = [&](size_t traffic_class) {
    return static_cast<double>(simulation.schedule().ClassState(traffic_class).received_bytes);
  };
  simulation.RunUntil(from);
  const Received before{received(kQueries), received(kScan)};
  simulation.RunUntil(to);
  return {received(kQueries) - before.queries, received(kScan) - before.scan};
}

// Units of the budget that the port can take.
double LinkBytes(nanoseconds time) {
  return TestPort().capacity_bytes_per_second * std::chrono::duration<double>(time).count();
}

class ClassesTest : public ::testing::TestWithParam<SchedulePolicy> {};
INSTANTIATE_TEST_SUITE_P(In, ClassesTest, ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         [](const auto& policy) { return std::string(SchedulePolicyName(policy.param)); });

TEST_P(ClassesTest, ShareTheLinkByWeightWhateverTheirBlocks) {
  for (const nanoseconds think : {nanoseconds(0), nanoseconds(2ms)}) {
    for (const auto& [queries_bytes, scan_bytes] :
         {std::pair(10'240, 10'240), std::pair(1024, 1 << 20), std::pair(1 << 20, 1024), std::pair(1024, 10'240)}) {
      PortSimulation simulation(WithTwoClasses(TestPortOptions(GetParam())));
      simulation.Submit(At(0ms), Backlog(queries_bytes, think, 1), kQueries);
      simulation.Submit(At(0ms), Backlog(scan_bytes, think, 501), kScan);
      const Received received = ReceivedBetween(simulation, At(50ms), At(400ms));
      EXPECT_NEAR(received.queries / received.scan, kQueriesWeight, 0.05 * kQueriesWeight)
          << queries_bytes << " " << scan_bytes << " " << think.count();
      EXPECT_EQ(simulation.drops(), 0);
    }
  }
}

// The processes of a link share by class, so a class counts for more or less in this process.
TEST_P(ClassesTest, ShareByTheWeightsOfTheLeaseWhileItIsInForce) {
  PortSimulation simulation(WithTwoClasses(TestPortOptions(GetParam())));
  simulation.Submit(At(0ms), Backlog(10'240, 0ms, 1), kQueries);
  simulation.Submit(At(0ms), Backlog(10'240, 0ms, 501), kScan);
  simulation.SetLease(At(1ms), {.class_weights = {4 * 0.25, 4 * 0.75}});
  const Received leased = ReceivedBetween(simulation, At(50ms), At(250ms));
  EXPECT_NEAR(leased.scan / leased.queries, 3, 0.2);
  simulation.SetLease(At(250ms), {});
  const Received own = ReceivedBetween(simulation, At(300ms), At(500ms));
  EXPECT_NEAR(own.queries / own.scan, kQueriesWeight, 0.2);
}

TEST_P(ClassesTest, TheDemandIsKnownByClass) {
  PortSimulation simulation(WithTwoClasses(TestPortOptions(GetParam())));
  EXPECT_EQ(simulation.schedule().Demand(At(0ms)).classes,
            (std::vector<ClassDemand>{{.weight = kQueriesWeight}, {.weight = 1}}));
  simulation.Submit(At(0ms), Backlog(10'240, 0ms, 501), kScan);
  simulation.RunUntil(At(50ms));
  const LinkDemand demand = simulation.schedule().Demand(At(50ms));
  EXPECT_EQ(demand.classes[kQueries], (ClassDemand{.weight = kQueriesWeight}));
  EXPECT_EQ(demand.classes[kScan].demand_bytes, demand.demand_bytes);
  EXPECT_EQ(demand.classes[kScan].received_bytes, demand.received_bytes);
  EXPECT_GT(demand.received_bytes, 0);
}

TEST_P(ClassesTest, ManySmallBlocksGetNoMoreThanOneLargeOne) {
  PortSimulation simulation(WithTwoClasses(TestPortOptions(GetParam())));
  simulation.Submit(At(0ms), Backlog(1 << 20, 0ms, 501), kScan);
  for (int i = 0; i < 200; ++i) {
    std::vector<PortSimulation::Response> block = Backlog(10'240, 0ms, 1);
    block.resize(4);
    simulation.Submit(At(0ms), block, kQueries);
  }
  const Received received = ReceivedBetween(simulation, At(50ms), At(400ms));
  EXPECT_NEAR(received.queries / received.scan, kQueriesWeight, 0.05 * kQueriesWeight);
}

TEST_P(ClassesTest, AClassWithoutTrafficLeavesTheLinkToTheOther) {
  for (const size_t busy : {kQueries, kScan}) {
    PortSimulation alone(TestPortOptions(GetParam()));
    PortSimulation classes(WithTwoClasses(TestPortOptions(GetParam())));
    const size_t expected = alone.Submit(At(0ms), Backlog(10'240, 0ms, 1));
    const size_t block = classes.Submit(At(0ms), Backlog(10'240, 0ms, 1), busy);
    EXPECT_EQ(classes.Await(block), alone.Await(expected));
  }
}

TEST_P(ClassesTest, AClassThatWasIdleHasSavedUpNothing) {
  PortSimulation simulation(WithTwoClasses(TestPortOptions(GetParam())));
  simulation.Submit(At(0ms), Backlog(10'240, 0ms, 501), kScan);
  simulation.Submit(At(200ms), Backlog(10'240, 0ms, 1), kQueries);
  const Received received = ReceivedBetween(simulation, At(220ms), At(300ms));
  EXPECT_NEAR(received.queries / received.scan, kQueriesWeight, 0.1 * kQueriesWeight);
}

TEST_P(ClassesTest, ASlowWorkerOfOneClassCostsTheOtherNothing) {
  for (const size_t slow : {kQueries, kScan}) {
    PortSimulation simulation(WithTwoClasses(TestPortOptions(GetParam())));
    std::vector<PortSimulation::Response> responses = Backlog(10'240, 0ms, 501);
    for (PortSimulation::Response& response : responses) {
      response.worker = 501;
      response.byte_time = nanoseconds(8000);  // 1 Mbit/s
    }
    simulation.Submit(At(0ms), responses, slow);
    simulation.Submit(At(0ms), Backlog(10'240, 0ms, 1), slow == kQueries ? kScan : kQueries);
    const Received received = ReceivedBetween(simulation, At(100ms), At(400ms));
    const double healthy = slow == kQueries ? received.scan : received.queries;
    EXPECT_GT(healthy, 0.93 * LinkBytes(300ms)) << slow;
    EXPECT_GT(received.both() - healthy, 0) << slow;
  }
}

// GrantsOptions: a byte takes a microsecond, and the budget is 10,000.
TEST(ClassesOrderTest, NoClassOvertakesAResponseWhoseTurnItIs) {
  ScheduleDriver link(WithTwoClasses(GrantsOptions()));
  link.Submit(At(0ms), {3300, 3300, 3300, 3300});
  link.set_traffic_class(kScan);
  link.Submit(At(0ms), {100, 3300, 3300});
  EXPECT_THAT(link.Ready(At(20ms), 0, 3300), ElementsAre("grant 0 3300"));
  EXPECT_THAT(link.Ready(At(20ms), 5, 3300), ElementsAre("grant 5 3300"));
  EXPECT_THAT(link.Ready(At(20ms), 1, 3300), IsEmpty());
  EXPECT_THAT(link.Ready(At(20ms), 4, 100), IsEmpty()) << "would fit, but it is the turn of the queries";
  EXPECT_THAT(link.Receive(At(21ms), 5, 3300), ElementsAre("grant 1 3300"));
}

// The share of the scans is a quarter of the budget. A sixth and two round trips are more.
TEST(ClassesOrderTest, AClassLeavesRoomToAHeavierOneThatHasNoneReady) {
  ScheduleDriver link(WithTwoClasses(GrantsOptions()));
  link.Submit(At(0ms), {3300, 1000});
  link.set_traffic_class(kScan);
  link.Submit(At(0ms), {3300, 400, 1000});
  EXPECT_THAT(link.Ready(At(20ms), 2, 3300), ElementsAre("grant 2 3300"));
  EXPECT_THAT(link.Ready(At(20ms), 3, 400), ElementsAre("grant 3 400"));
  EXPECT_THAT(link.Ready(At(20ms), 4, 1000), IsEmpty()) << "would fit the budget";
  EXPECT_THAT(link.Ready(At(20ms), 0, 3300), ElementsAre("grant 0 3300")) << "at once";
  EXPECT_THAT(link.Receive(At(21ms), 3, 400), IsEmpty());
  EXPECT_THAT(link.Receive(At(21ms), 0, 3300), ElementsAre("grant 4 1000"));
}

TEST(ClassesOrderTest, AClassLeavesNoRoomToOneThatHasNoResponsesToCome) {
  ScheduleDriver link(WithTwoClasses(GrantsOptions()));
  link.set_traffic_class(kScan);
  link.Submit(At(0ms), {3300, 3300, 3300});
  EXPECT_THAT(link.Ready(At(20ms), 0, 3300), ElementsAre("grant 0 3300"));
  EXPECT_THAT(link.Ready(At(20ms), 1, 3300), ElementsAre("grant 1 3300"));
}

TEST(ClassesOrderTest, WhatAClassGotUnderAnotherPolicyCountsNoMore) {
  const ScheduleOptions options = WithTwoClasses(GrantsOptions());
  ScheduleOptions unscheduled = options;
  unscheduled.policy = SchedulePolicy::kUnscheduled;
  ScheduleDriver link(options);
  link.Submit(At(0ms), {60'000});
  EXPECT_THAT(link.Ready(At(20ms), 0, 60'000), SizeIs(3));
  EXPECT_THAT(link.Reconfigure(At(21ms), unscheduled), ElementsAre("grant 0 51027"));
  link.Finish(At(80ms), 0);
  link.Reconfigure(At(80ms), options);
  link.Submit(At(80ms), {3000, 3000, 3000, 3000});
  link.set_traffic_class(kScan);
  link.Submit(At(80ms), {3000, 3000, 3000, 3000});
  for (const uint64_t tag : {5, 6, 7, 8}) link.Ready(At(100ms), tag, 3000);
  EXPECT_THAT(link.Ready(At(100ms), 1, 3000), ElementsAre("grant 1 3000"));
  EXPECT_THAT(link.Ready(At(100ms), 2, 3000), IsEmpty());
  EXPECT_THAT(link.Receive(At(103ms), 5, 3000), ElementsAre("grant 2 3000"));
}

TEST(ClassesOrderTest, AResponseThatIsHeldForLongWaitsForItsClass) {
  ScheduleOptions options = WithTwoClasses(GrantsOptions());
  options.stall_timeout = absl::Seconds(10);
  options.classes[kScan].weight = 0.001;
  ScheduleDriver link(options);
  link.Submit(At(0ms), {3300, 3300, 3300, 3300, 3300});
  link.set_traffic_class(kScan);
  link.Submit(At(0ms), {3300, 3300, 3300});
  for (uint64_t tag = 5; tag < 8; ++tag) link.Ready(At(20ms), tag, 3300);
  for (uint64_t tag = 0; tag < 5; ++tag) link.Ready(At(21ms), tag, 3300);
  EXPECT_THAT(link.Receive(At(22ms), 5, 3300), ElementsAre("grant 0 3300"));
  EXPECT_THAT(link.Receive(At(22ms), 6, 3300), ElementsAre("grant 1 3300"));
  EXPECT_THAT(link.Receive(At(3s), 0, 3300), ElementsAre("grant 2 3300"));
  EXPECT_THAT(link.Receive(At(9s), 1, 3300), ElementsAre("grant 3 3300"));
}

TEST(ClassesOrderTest, AClassKeepsItsPartOfTheRoomForHeaders) {
  ScheduleDriver link(WithTwoClasses(GrantsOptions()));
  link.set_traffic_class(kScan);
  link.Submit(At(0ms), std::vector<int64_t>(40, 4000));
  const int64_t waiting = link.state().waiting_calls;
  ASSERT_GT(waiting, 0);
  link.set_traffic_class(kQueries);
  EXPECT_THAT(link.Submit(At(21ms), {4000}), ElementsAre("send 40"));
  EXPECT_EQ(link.state().waiting_calls, waiting);
}

TEST(ClassesOrderTest, AClassKeepsItsPartOfTheResponsesThatWaitAtWorkers) {
  ScheduleOptions options = WithTwoClasses(GrantsOptions());
  options.ready_bytes = 100'000;
  ScheduleDriver link(options);
  link.set_traffic_class(kScan);
  link.Submit(At(0ms), std::vector<int64_t>(40, 4000));
  for (uint64_t tag = 0; tag < 4; ++tag) link.Ready(At(20ms), tag, 50'000);
  EXPECT_THAT(link.Submit(At(21ms), {4000}), IsEmpty()) << "the class holds the whole bound";
  link.set_traffic_class(kQueries);
  EXPECT_THAT(link.Submit(At(21ms), {4000}), ElementsAre("send 41"));
}

TEST(ClassesOrderTest, ABlockOfAClassThatDoesNotExistIsRefused) {
  LinkSchedule schedule(WithTwoClasses(GrantsOptions()));
  std::vector<Action> actions;
  const auto block = schedule.Submit(At(0ms), {{.response_bytes = 1}}, TimePoint::max(), actions, nullptr, 2);
  EXPECT_TRUE(absl::IsInvalidArgument(block.status())) << block.status();
  EXPECT_EQ(block.status().message(), "traffic_class: 2 is not below the number of classes: 2");
  EXPECT_TRUE(actions.empty());
}

std::string Refusal(const ScheduleOptions& options) {
  const absl::Status status = options.Validate();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(ClassesOptionsTest, BoundsAreChecked) {
  const ScheduleOptions valid = WithTwoClasses(GrantsOptions());
  EXPECT_TRUE(valid.Validate().ok());
  ScheduleOptions options = valid;
  options.classes[0].weight = 0;
  EXPECT_THAT(Refusal(options), HasSubstr("classes: \"queries\": weight: 0 is outside of 0.001 to 1000"));
  options = valid;
  options.classes[1].name = "queries";
  EXPECT_THAT(Refusal(options), HasSubstr("two classes have this name"));
  for (const std::string& name : {std::string(), std::string("a b"), std::string("a\nb"), std::string(33, 'x')}) {
    options.classes[1].name = name;
    EXPECT_THAT(Refusal(options), HasSubstr("is not a name of 1 to 32 letters of a-z, A-Z, 0-9"));
  }
  options = valid;
  options.classes.resize(17);
  EXPECT_THAT(Refusal(options), HasSubstr("classes: 17 are more than 16"));
  options = valid;
  options.policy = SchedulePolicy::kBatches;
  EXPECT_THAT(Refusal(options), HasSubstr("the policy batches does not share the link; use grants or rolling"));
}

TEST(ClassesOptionsTest, AClassHasAnIndexByItsName) {
  const std::vector<TrafficClass> classes = WithTwoClasses(GrantsOptions()).classes;
  EXPECT_EQ(TrafficClassIndex(classes, "scan").value_or(9), kScan);
  EXPECT_EQ(TrafficClassIndex(classes, "").value_or(9), 0U);
  EXPECT_EQ(TrafficClassIndex({}, "").value_or(9), 0U);
  const absl::Status unknown = TrafficClassIndex(classes, "batch").status();
  EXPECT_TRUE(absl::IsInvalidArgument(unknown)) << unknown;
  EXPECT_EQ(unknown.message(), "\"batch\" is not a class of the link, which has queries, scan");
  EXPECT_EQ(TrafficClassIndex({}, "batch").status().message(),
            "\"batch\" is not a class of the link, which has no classes");
}

TEST(ClassesOptionsTest, WeightsMayChangeAndNamesMayNot) {
  ScheduleOptions options = WithTwoClasses(GrantsOptions());
  ScheduleDriver link(options);
  options.classes[kScan].weight = 7;
  EXPECT_THAT(link.Reconfigure(At(0ms), options), IsEmpty());
  EXPECT_EQ(link.schedule().options().classes[kScan].weight, 7);
  options.classes.pop_back();
  std::vector<Action> actions;
  const absl::Status status = link.schedule().Reconfigure(At(0ms), options, actions);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("classes: queries cannot take the place of queries, scan"));
}

}  // namespace
}  // namespace sluice::testing
