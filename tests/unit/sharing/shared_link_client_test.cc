#include "lib/sharing/shared_link_client.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/io_thread.h"
#include "lib/sharing/lease_server.h"
#include "prometheus/registry.h"
#include "tests/unit/storage/blocks/test_cluster.h"

// Links of one process that share one budget, over a real socket and real workers.
namespace sluice {
namespace {

using testing::Eventually;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::Slow;
using testing::TestCluster;

constexpr int64_t kBudget = 32'768;

class SharedLinkClientTest : public ::testing::Test {
 protected:
  void Serve() {
    auto server = LeaseServer::Start(
        io_thread_.context(),
        {.socket = socket_, .shares = {.budget_bytes = kBudget, .start_grace = std::chrono::nanoseconds(0)}},
        registry_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  TestCluster::Options Shared(const std::string& application, double weight = 1,
                              SchedulePolicy policy = SchedulePolicy::kGrants) const {
    return {.schedule = {.policy = policy},
            .share = ShareLink({.socket = socket_, .application = application, .weight = weight})};
  }

  static bool AwaitBudget(TestCluster& cluster, int64_t bytes) {
    return Eventually([&] { return cluster.link().State().budget_bytes == bytes; });
  }

  // Over all applications, at one moment.
  double Sum(const std::string& gauge) const {
    double sum = 0;
    for (const prometheus::MetricFamily& family : server_->Collect()) {
      if (family.name != gauge) continue;
      for (const prometheus::ClientMetric& metric : family.metric) sum += metric.gauge.value;
    }
    return sum;
  }

  const std::string socket_ = "/tmp/sluice-share-" + std::to_string(getpid()) + ".sock";
  prometheus::Registry registry_;
  IoThread io_thread_;
  std::unique_ptr<LeaseServer> server_;
};

TEST_F(SharedLinkClientTest, ReadsGoByLeases) {
  Serve();
  for (const SchedulePolicy policy : {SchedulePolicy::kGrants, SchedulePolicy::kRolling, SchedulePolicy::kBatches}) {
    TestCluster cluster(Shared("search", 1, policy));
    for (uint64_t block = 0; block < 3; ++block) {
      const auto read = cluster.Read(block);
      ASSERT_TRUE(read.ok()) << SchedulePolicyName(policy) << ": " << read.status();
      EXPECT_EQ(read->data, cluster.SourceBlock(block));
    }
    EXPECT_EQ(cluster.Gauge("sluice_budget_leased"), 1);
    EXPECT_EQ(cluster.link().State().budget_bytes, kBudget);
  }
}

TEST_F(SharedLinkClientTest, TwoThatReadAtOnceFitTheBudgetTogether) {
  Serve();
  TestCluster first(Shared("first"));
  TestCluster second(Shared("second", 3));
  std::vector<std::thread> readers;
  std::atomic<int> reading = 2;
  for (TestCluster* cluster : {&first, &second}) {
    readers.emplace_back([cluster, &reading] {
      for (int i = 0; i < 50; ++i) {
        const auto read = cluster->Read(static_cast<uint64_t>(i % 5));
        EXPECT_TRUE(read.ok()) << read.status();
      }
      --reading;
    });
  }
  const auto both_have_read = [&] {
    EXPECT_LE(Sum("sluice_sharing_lease_bytes"), kBudget);
    EXPECT_LE(Sum("sluice_sharing_in_flight_bytes"), kBudget);
    return reading == 0;
  };
  EXPECT_TRUE(Eventually(both_have_read));
  for (std::thread& reader : readers) reader.join();
  for (TestCluster* cluster : {&first, &second}) {
    cluster->link().Await(
        [](LinkLoop& loop) { EXPECT_GT(loop.schedule().Demand(loop.now()).received_bytes, 50 * 4 * 4096); });
  }
}

TEST_F(SharedLinkClientTest, WithoutADaemonItReadsWithItsStartShare) {
  TestCluster cluster(Shared("search"));
  const auto read = cluster.Read(0);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(cluster.link().State().budget_bytes, kBudget / 8);
  EXPECT_EQ(cluster.Gauge("sluice_budget_leased"), 0);
  Serve();
  EXPECT_TRUE(AwaitBudget(cluster, kBudget));
  EXPECT_EQ(cluster.Gauge("sluice_budget_leased"), 1);
}

TEST_F(SharedLinkClientTest, AReadOutlivesTheDaemon) {
  Serve();
  TestCluster cluster(Shared("search"));
  cluster.SpoilSrus([](const auto&) { return Slow(absl::Milliseconds(50)); });
  ASSERT_TRUE(cluster.Read(0).ok());
  std::thread reader([&] {
    for (int i = 0; i < 5; ++i) {
      const auto read = cluster.Read(1);
      EXPECT_TRUE(read.ok()) << read.status();
    }
  });
  server_.reset();
  EXPECT_TRUE(Eventually([&] { return cluster.Gauge("sluice_budget_leased") == 0; }));
  reader.join();
  Serve();
  EXPECT_TRUE(Eventually([&] { return cluster.Gauge("sluice_budget_leased") == 1; }));
  EXPECT_TRUE(cluster.Read(2).ok());
}

TEST_F(SharedLinkClientTest, ItsBudgetCannotBeSet) {
  TestCluster cluster(Shared("search"));
  EXPECT_THAT(cluster.link().SetBudget(1000), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST_F(SharedLinkClientTest, AnotherBufferOfTheProfileLeavesTheLeaseAlone) {
  Serve();
  TestCluster cluster(Shared("search"));
  ASSERT_TRUE(Eventually([&] { return cluster.Gauge("sluice_budget_leased") == 1; }));
  const int64_t leased_bytes = cluster.link().State().budget_bytes;
  LinkProfile smaller;
  smaller.buffer_bytes = 16 * 1024;
  const auto same = Shared("search").share;
  ASSERT_TRUE(cluster.link().Reconfigure({.schedule = {.profile = smaller}, .share = same}).ok());
  EXPECT_EQ(cluster.link().State().budget_bytes, leased_bytes);
  const auto heavier = Shared("search", 3).share;
  EXPECT_THAT(cluster.link().Reconfigure({.schedule = {.profile = smaller}, .share = heavier}),
              HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_F(SharedLinkClientTest, RefusesWhatCannotBeShared) {
  const auto refused = [](Link::Options options, const std::string& what) {
    const absl::Status status = Link::Validate(options);
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  };
  const auto good = ShareLink({.socket = "/run/link.sock", .application = "search"});
  EXPECT_TRUE(Link::Validate({.share = good}).ok());
  refused({.share = ShareLink({.socket = "", .application = "search"})}, "share.socket is empty");
  refused({.share = ShareLink({.socket = "/run/link.sock", .application = ""})}, "share.application: \"\" is not");
  refused({.share = ShareLink({.socket = "/run/link.sock", .application = "search", .weight = 0})}, "share.weight: 0");
  refused({.share = ShareLink({.socket = "/run/link.sock", .application = "search", .start_bytes = 0})},
          "share.start_bytes: 0 is below 1");
  refused({.schedule = {.policy = SchedulePolicy::kUnscheduled}, .share = good}, "policy other than unscheduled");
  refused({.budget = {.floor_bytes = 1}, .share = good}, "no budget floor");
}

}  // namespace
}  // namespace sluice
