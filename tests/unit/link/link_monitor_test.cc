#include "lib/link/link_monitor.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "sluice/fan_out.h"
#include "sluice/link.h"
#include "sluice/v1/sru_service.pb.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/clock.h"
#include "tests/notification.h"
#include "tests/unit/storage/blocks/test_cluster.h"
#include "tests/watched.h"

// Uses real connections over loopback, which loses nothing. tests/unit/link/worker_table_loss_test.cc tests the losses.
namespace sluice {
namespace {

using testing::Eventually;
using testing::kPatience;
using testing::Slow;
using testing::TestCluster;

class LinkMonitorTest : public ::testing::Test {
 protected:
  static TestCluster::Options Rolling(int workers) {
    return {.workers = workers, .schedule = {.policy = SchedulePolicy::kRolling}};
  }

  static bool AwaitConnections(const TestCluster& cluster, double expected) {
    return Eventually([&] { return cluster.Gauge("sluice_link_connections") == expected; });
  }
};

TEST_F(LinkMonitorTest, ShowsConnectionsToWorkersAndTheirRoundTrips) {
  TestCluster cluster(Rolling(4));
  EXPECT_EQ(cluster.Gauge("sluice_link_connections"), 0);
  EXPECT_EQ(cluster.Gauge("sluice_link_rtt_seconds", "min"), std::nullopt);
  ASSERT_TRUE(cluster.Read(0).ok());
  EXPECT_TRUE(AwaitConnections(cluster, 4));
  const auto min_rtt = cluster.Gauge("sluice_link_rtt_seconds", "min");
  const auto smoothed_rtt = cluster.Gauge("sluice_link_rtt_seconds", "smoothed");
  ASSERT_TRUE(min_rtt.has_value() && smoothed_rtt.has_value());
  EXPECT_GT(*min_rtt, 0);
  EXPECT_LE(*min_rtt, *smoothed_rtt);
  EXPECT_LT(*smoothed_rtt, 1) << "over loopback";
}

// The connections of the last responses count, too.
TEST_F(LinkMonitorTest, LooksOnceMoreAfterTheLastAnswer) {
  TestCluster cluster(Rolling(4));
  cluster.SpoilSrus([](const auto&) { return Slow(absl::Milliseconds(400)); });
  ASSERT_TRUE(cluster.Read(0).ok());
  EXPECT_TRUE(AwaitConnections(cluster, 4));
}

TEST_F(LinkMonitorTest, EachLinkSeesItsOwnWorkers) {
  TestCluster two(Rolling(2));
  TestCluster three(Rolling(3));
  ASSERT_TRUE(two.Read(0).ok());
  ASSERT_TRUE(three.Read(0).ok());
  EXPECT_TRUE(AwaitConnections(two, 2));
  EXPECT_TRUE(AwaitConnections(three, 3));
  ASSERT_TRUE(two.Read(1).ok());
  EXPECT_TRUE(AwaitConnections(two, 2));
}

TEST_F(LinkMonitorTest, WorkersThatAreGoneAreSeenToBeGone) {
  TestCluster cluster(Rolling(3));
  ASSERT_TRUE(cluster.Read(0).ok());
  ASSERT_TRUE(AwaitConnections(cluster, 3));
  cluster.worker(1).Stop();
  EXPECT_FALSE(cluster.Read(0).ok());
  EXPECT_TRUE(AwaitConnections(cluster, 2));
}

class SlowWorkersTest : public LinkMonitorTest, public ::testing::WithParamInterface<SchedulePolicy> {};
INSTANTIATE_TEST_SUITE_P(By, SlowWorkersTest, ::testing::Values(SchedulePolicy::kRolling, SchedulePolicy::kGrants),
                         [](const auto& info) { return std::string(SchedulePolicyName(info.param)); });

TEST_P(SlowWorkersTest, HaveLostNothing) {
  TestCluster cluster({.workers = 4, .schedule = {.policy = GetParam()}});
  for (const absl::Duration delay : {absl::ZeroDuration(), absl::Milliseconds(60), absl::Milliseconds(600)}) {
    cluster.SpoilSrus([delay](const auto&) { return Slow(delay); });
    for (uint64_t block = 0; block < 3; ++block) ASSERT_TRUE(cluster.Read(block).ok());
  }
  EXPECT_TRUE(Eventually([&] { return cluster.Gauge("sluice_link_connections") >= 4; }));
  // Twelve workers were silent long enough. One count may be wrong on a very busy machine: a response that has arrived
  // may wait for its thread as long as a loss would take to show.
  EXPECT_LE(cluster.Metric("sluice_timeouts_total", "tcp_rto"), 1);
  EXPECT_LE(cluster.Metric("sluice_inferred_losses_total", "silence"), 1);
}

// Changes of the budget, passed from the link's thread to the test's.
class Changes {
 public:
  void Add(const BudgetChange& change) {
    changes_.Change([&](std::vector<BudgetChange>& changes) { changes.push_back(change); });
  }
  std::vector<BudgetChange> all() const { return changes_.Get(); }

 private:
  testing::Watched<std::vector<BudgetChange>> changes_;
};

class UnknownBufferTest : public LinkMonitorTest {
 protected:
  // A link that calls wait for, and that is never busy.
  static TestCluster::Options UnknownBuffer() {
    return {.workers = 8,
            .file_bytes = 8 * 8192 * 4,
            .sru_bytes = 8192,
            .schedule = {.profile = {.capacity_bytes_per_second = 1e9}, .policy = SchedulePolicy::kRolling},
            .budget = {.buffer_known = false}};
  }

  static bool ReadUntil(TestCluster& cluster, const std::function<bool()>& condition) {
    cluster.SpoilSrus([](const auto&) { return Slow(absl::Milliseconds(2)); });
    return Eventually([&] {
      EXPECT_TRUE(testing::Drain(*cluster.reader().Open("data", std::nullopt)).status.ok());
      return condition() || ::testing::Test::HasFailure();
    });
  }
};

TEST_F(UnknownBufferTest, TheBudgetGrowsWhileNothingIsLost) {
  Changes changes;
  TestCluster::Options options = UnknownBuffer();
  options.budget.on_change = [&](const BudgetChange& change) { changes.Add(change); };
  TestCluster cluster(options);
  EXPECT_EQ(cluster.Gauge("sluice_budget_bytes"), 16384);
  ASSERT_TRUE(ReadUntil(cluster, [&] { return !changes.all().empty(); }));
  const BudgetChange first = changes.all().front();
  EXPECT_EQ(first.before_bytes, 16384);
  EXPECT_EQ(first.decision, "grow");
  EXPECT_EQ(first.after_bytes, 32768);
  EXPECT_FALSE(first.reason.empty());
  EXPECT_TRUE(Eventually([&] { return cluster.Metric("sluice_budget_decisions_total", "grow") >= 1; }));
}

TEST_F(UnknownBufferTest, TheBudgetMayBeFixedByTheOneWhoIsToldOfAChange) {
  std::atomic<int> changes = 0;
  std::atomic<Link*> link = nullptr;
  TestCluster::Options options = UnknownBuffer();
  options.budget.on_change = [&](const BudgetChange&) {
    ++changes;
    EXPECT_TRUE(link.load()->SetBudget(20000).ok());
  };
  TestCluster cluster(options);
  link = &cluster.link();
  ASSERT_TRUE(ReadUntil(cluster, [&] { return changes > 0; }));
  EXPECT_TRUE(Eventually([&] { return cluster.Gauge("sluice_budget_limit_bytes") == 20000; }));
  EXPECT_EQ(cluster.Gauge("sluice_budget_floor_bytes"), 20000);
  EXPECT_EQ(cluster.Gauge("sluice_budget_bytes"), 20000);
  EXPECT_EQ(cluster.link().State().budget_bytes, 20000);
  EXPECT_EQ(changes, 1);
}

// The link's thread is late, so a larger budget discovers the passed deadline.
TEST_F(UnknownBufferTest, TheBudgetMayBeFixedByACallThatEndsAsItChanges) {
  TestCluster::Options options = UnknownBuffer();
  options.inline_callbacks = true;
  options.schedule.stall_timeout = absl::Minutes(10);
  TestCluster cluster(options);
  cluster.SpoilSrus([](const auto&) { return testing::Hang(); });
  const auto fan_out = FanOut::Create(cluster.shared_link(), {.workers = {cluster.worker(0).address()}});
  ASSERT_TRUE(fan_out.ok()) << fan_out.status();
  ASSERT_TRUE((*fan_out)->Connect().empty());
  const auto ask = [&](absl::Duration timeout, FanOut::Done done) {
    v1::ReadSruRequest request;
    request.set_file("data");
    request.set_length(1);
    return (*fan_out)->CallAsync<v1::ReadSruRequest, v1::ReadSruResponse>(
        {"/sluice.v1.SruService/ReadSru"}, [request](size_t) { return Ask<v1::ReadSruRequest>(request, 15'000); },
        [](size_t, const v1::ReadSruResponse&) { return absl::OkStatus(); }, {.timeout = timeout}, std::move(done));
  };
  testing::Notification held_ended;
  const auto held = ask(kPatience, [&](const FanOutResult&) { held_ended.Notify(); });
  constexpr auto kTimeout = std::chrono::milliseconds(900);
  const TimePoint deadline = Now() + kTimeout;
  testing::Notification overdue_ended;
  const auto overdue = ask(absl::FromChrono(kTimeout), [&](const FanOutResult& result) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(result.status)) << result.status;
    EXPECT_TRUE(cluster.link().SetBudget(20000).ok());
    overdue_ended.Notify();
  });
  // By then the monitor has seen once that a call waits.
  while (Now() < deadline - std::chrono::milliseconds(600)) std::this_thread::yield();
  cluster.link().Post([deadline](LinkLoop&) {
    while (Now() < deadline + std::chrono::milliseconds(10)) std::this_thread::yield();
  });
  EXPECT_TRUE(overdue_ended.Await());
  EXPECT_EQ(cluster.Gauge("sluice_budget_floor_bytes"), 20000);
  EXPECT_TRUE(Eventually([&] { return cluster.link().State().budget_bytes == 20000; }));
  held->Cancel();
  EXPECT_TRUE(held_ended.Await());
}

// Requests of `rolling` use up the budget while workers think.
TEST_F(UnknownBufferTest, TheLinkIsIdleWhileCallsWaitForThinkingWorkers) {
  TestCluster::Options options = UnknownBuffer();
  options.budget = {};
  options.schedule.budget_bytes = 16384;
  TestCluster cluster(options);
  EXPECT_EQ(cluster.Gauge("sluice_link_idle_seconds_total"), 0);
  cluster.SpoilSrus([](const auto&) { return Slow(absl::Milliseconds(200)); });
  EXPECT_TRUE(testing::Drain(*cluster.reader().Open("data", std::nullopt)).status.ok());
  EXPECT_TRUE(Eventually([&] { return cluster.Gauge("sluice_link_idle_seconds_total") >= 0.2; }));
}

TEST_F(LinkMonitorTest, SetBudgetFixesIt) {
  TestCluster cluster(Rolling(2));
  EXPECT_LT(cluster.Gauge("sluice_budget_floor_bytes"), cluster.Gauge("sluice_budget_limit_bytes"));
  ASSERT_TRUE(cluster.link().SetBudget(9000).ok());
  for (const char* gauge : {"sluice_budget_bytes", "sluice_budget_floor_bytes", "sluice_budget_limit_bytes"}) {
    EXPECT_EQ(cluster.Gauge(gauge), 9000) << gauge;
  }
  EXPECT_EQ(cluster.Gauge("sluice_budget_ceiling_bytes"), 0);
  EXPECT_FALSE(cluster.link().SetBudget(0).ok());
  EXPECT_EQ(cluster.Gauge("sluice_budget_floor_bytes"), 9000) << "an error changes nothing";
}

TEST_F(LinkMonitorTest, ShowsWhatThePlanPromises) {
  TestCluster cluster(Rolling(2));
  EXPECT_EQ(cluster.Gauge("sluice_plan_goodput_bytes_per_second"), 0) << "nothing was asked for";
  ASSERT_TRUE(cluster.Read(0).ok());
  const auto goodput = cluster.Gauge("sluice_plan_goodput_bytes_per_second");
  EXPECT_GT(goodput, 0);
  EXPECT_LT(goodput, cluster.Gauge("sluice_link_capacity_bytes_per_second"));
}

TEST_F(LinkMonitorTest, PlanFollowsTheBudget) {
  TestCluster cluster({.workers = 2, .schedule = {.policy = SchedulePolicy::kGrants}});
  ASSERT_TRUE(cluster.Read(0).ok());
  const auto before = cluster.Gauge("sluice_plan_goodput_bytes_per_second");
  ASSERT_TRUE(cluster.link().SetBudget(5000).ok());  // the default path holds 12,500 bytes
  EXPECT_LT(cluster.Gauge("sluice_plan_goodput_bytes_per_second"), before);
}

TEST_F(LinkMonitorTest, PlanPromisesNothingIfUnscheduledResponsesExceedTheBuffer) {
  const ScheduleOptions unscheduled{.policy = SchedulePolicy::kUnscheduled};  // the default buffer of 32 KiB
  TestCluster few({.workers = 2, .sru_bytes = 4096, .schedule = unscheduled});
  ASSERT_TRUE(few.Read(0).ok());
  EXPECT_GT(few.Gauge("sluice_plan_goodput_bytes_per_second"), 0);
  TestCluster many({.workers = 20, .sru_bytes = 4096, .schedule = unscheduled});
  ASSERT_TRUE(many.Read(0).ok());
  const auto unknown = many.Gauge("sluice_plan_goodput_bytes_per_second");
  ASSERT_TRUE(unknown.has_value());
  EXPECT_TRUE(std::isnan(*unknown)) << *unknown;
}

TEST_F(LinkMonitorTest, LinksComeAndGoWhileOthersAreWatched) {
  TestCluster cluster(Rolling(2));
  for (int round = 0; round < 10; ++round) {
    const auto link = Link::Create(LinkProfile{});
    ASSERT_TRUE(link.ok());
    ASSERT_TRUE(cluster.Read(static_cast<uint64_t>(round % 3)).ok());
  }
  EXPECT_TRUE(AwaitConnections(cluster, 2));
}

}  // namespace
}  // namespace sluice
