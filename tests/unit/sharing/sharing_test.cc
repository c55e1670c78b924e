#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/telemetry/process_metrics.h"
#include "tests/unit/sharing/raw_process.h"
#include "tests/unit/sharing/sharing_fixture.h"
#include "tests/unit/telemetry/metric_catalogue.h"

// LeaseServer and LeaseClient over a real socket.
namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(SharingTest, OneAloneHasTheWholeLink) {
  Serve();
  SharingProcess process(socket_, "search");
  process.Want(kLots);
  ASSERT_TRUE(process.AwaitBytes(kBudget));
  EXPECT_TRUE(process.lease().may_exceed);
  EXPECT_EQ(process.lease().link_bytes, kBudget);
  EXPECT_TRUE(process.AwaitState(absl::StatusCode::kOk));
  EXPECT_TRUE(process.leased());
  EXPECT_TRUE(AwaitEvents({"joined search"}));
}

TEST_F(SharingTest, SharesFollowWeightsAndDemand) {
  Serve();
  SharingProcess heavy(socket_, "heavy", 3);
  SharingProcess light(socket_, "light", 1);
  heavy.Want(kLots);
  light.Want(kLots);
  EXPECT_TRUE(heavy.AwaitBytes(24'000));
  EXPECT_TRUE(light.AwaitBytes(8000));
  EXPECT_FALSE(light.lease().may_exceed);
  EXPECT_EQ(light.lease().plan_bytes, kBudget);
  light.Want(0);
  EXPECT_TRUE(heavy.AwaitBytes(kBudget));
  light.Want(kLots);
  EXPECT_TRUE(light.AwaitBytes(8000));
}

TEST_F(SharingTest, WhatIsInFlightIsNotGivenToOthers) {
  Serve();
  SharingProcess first(socket_, "first");
  first.Want(kLots);
  ASSERT_TRUE(first.AwaitBytes(kBudget));
  first.SetInFlight(30'000);
  SharingProcess second(socket_, "second");
  second.Want(kLots, 8000);
  ASSERT_TRUE(first.AwaitBytes(16'000));
  ASSERT_TRUE(second.AwaitState(absl::StatusCode::kOk));
  EXPECT_EQ(second.lease().bytes, 0);
  first.SetInFlight(16'000);
  EXPECT_TRUE(second.AwaitBytes(16'000));
}

TEST_F(SharingTest, LeasesAreProlonged) {
  Serve();
  SharingProcess process(socket_, "search");
  ASSERT_TRUE(process.AwaitBytes(kBudget));
  const TimePoint first = process.lease().until;
  EXPECT_TRUE(process.Await([first](const BudgetLease& lease) { return lease.until > first + 500ms; }));
  EXPECT_EQ(Metric("sluice_sharing_expirations_total", "search"), 0);
}

TEST_F(SharingTest, MoreProcessesReportLessOften) {
  Serve();
  RawProcess first(socket_);
  first.Hello("first", 1);
  first.Report(1000);
  EXPECT_EQ(first.Receive()->lease().report_pause_ns(), 25'000);
  RawProcess second(socket_);
  second.Hello("second", 1);
  second.Report(1000);
  EXPECT_EQ(second.Receive()->lease().report_pause_ns(), 50'000);
}

TEST_F(SharingTest, AProcessThatIsGoneLeavesItsLeaseToTheOthers) {
  Serve();
  SharingProcess stays(socket_, "stays");
  stays.Want(kLots);
  ASSERT_TRUE(stays.AwaitBytes(kBudget));
  {
    SharingProcess goes(socket_, "goes");
    goes.Want(kLots);
    ASSERT_TRUE(goes.AwaitBytes(16'000));
  }
  EXPECT_TRUE(stays.AwaitBytes(kBudget));
  EXPECT_TRUE(AwaitEvents({"joined stays", "joined goes", "left goes"}));
}

TEST_F(SharingTest, WithoutADaemonAProcessHasItsStartShareAndFindsALaterOne) {
  SharingProcess process(socket_, "search");
  process.Want(kLots);
  ASSERT_TRUE(process.AwaitBytes(4000));
  EXPECT_TRUE(process.lease().may_exceed);
  EXPECT_EQ(process.lease().plan_bytes, 8000);
  EXPECT_TRUE(process.AwaitState(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(process.leased());
  Serve();
  EXPECT_TRUE(process.AwaitBytes(kBudget));
}

TEST_F(SharingTest, WhenTheDaemonIsGoneEverybodyHasHisSafeShareAndComesBackToTheNext) {
  LeaseServer::Options options = Options();
  options.shares.start_grace = 300ms;
  Serve(options);
  SharingProcess heavy(socket_, "heavy", 3);
  SharingProcess light(socket_, "light", 1);
  heavy.Want(kLots);
  ASSERT_TRUE(heavy.AwaitBytes(kBudget));
  ASSERT_TRUE(light.AwaitState(absl::StatusCode::kOk));
  server_.reset();
  EXPECT_TRUE(heavy.AwaitBytes(24'000));
  EXPECT_TRUE(light.AwaitBytes(8000));
  EXPECT_TRUE(light.AwaitState(absl::StatusCode::kUnavailable));
  Serve(options);
  EXPECT_TRUE(heavy.AwaitBytes(kBudget));
  EXPECT_TRUE(light.AwaitState(absl::StatusCode::kOk));
}

TEST_F(SharingTest, AUserThatIsNotAllowedIsRefused) {
  LeaseServer::Options options = Options();
  options.allowed_uids = {getuid() + 1};
  Serve(options);
  SharingProcess process(socket_, "stranger");
  EXPECT_TRUE(process.AwaitState(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(std::string(process.state().message()), HasSubstr("uid " + std::to_string(getuid())));
  EXPECT_TRUE(process.AwaitBytes(4000));
  EXPECT_TRUE(AwaitEvents({"refused "}));
  EXPECT_EQ(Metric("sluice_sharing_refusals_total", "uid"), 1);
  options.allowed_uids = {getuid() + 1, getuid()};
  Serve(options);
  EXPECT_TRUE(process.AwaitState(absl::StatusCode::kOk));
}

TEST_F(SharingTest, TheProcessesOfAUserHaveABoundedWeight) {
  LeaseServer::Options options = Options();
  options.max_uid_weight = 3;
  Serve(options);
  auto first = std::make_unique<RawProcess>(socket_);
  first->Hello("first", 2);
  first->Report(kLots);
  ASSERT_TRUE(first->Receive().ok());
  RawProcess greedy(socket_);
  greedy.Hello("greedy", 1.5);
  EXPECT_THAT(greedy.Refusal(), HasSubstr("weight 1.5 and 2 of the other processes of uid"));
  RawProcess modest(socket_);
  modest.Hello("modest", 1);
  modest.Report(kLots);
  EXPECT_TRUE(modest.Receive().ok());
  first.reset();
  EXPECT_TRUE(AwaitEvents({"joined first", "refused ", "joined modest", "left first"}));
  RawProcess next(socket_);
  next.Hello("next", 2);
  next.Report(kLots);
  EXPECT_TRUE(next.Receive().ok());
  EXPECT_EQ(Metric("sluice_sharing_refusals_total", "uid"), 1);
}

TEST_F(SharingTest, AConnectionWithoutAHelloEnds) {
  LeaseServer::Options options = Options();
  options.hello_timeout = std::chrono::milliseconds(20);
  Serve(options);
  RawProcess joined(socket_);
  joined.Hello("joined", 1);
  RawProcess silent(socket_);
  EXPECT_EQ(silent.Refusal(), "no hello came in time");
  joined.Report(kLots);
  EXPECT_TRUE(joined.Receive().ok());
}

TEST_F(SharingTest, ADaemonOfAnotherUserIsNotBelieved) {
  Serve();
  SharingProcess process(socket_, "process", 1, getuid() + 1);
  EXPECT_TRUE(process.AwaitState(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(std::string(process.state().message()), HasSubstr("daemon_uid is " + std::to_string(getuid() + 1)));
  EXPECT_TRUE(process.AwaitBytes(4000)) << "its start share";
}

TEST(CheckDaemonTest, BelievesRootItsOwnUserAndTheOwnerOfTheFolder) {
  const std::string path = SocketPath();
  EXPECT_TRUE(CheckDaemon(path, 0, std::nullopt).ok());
  EXPECT_TRUE(CheckDaemon(path, geteuid(), std::nullopt).ok());
  EXPECT_TRUE(CheckDaemon(path, 7, 7).ok());
  EXPECT_FALSE(CheckDaemon(path, 0, 7).ok());
  EXPECT_FALSE(CheckDaemon(path, geteuid() + 7, std::nullopt).ok());
  if (geteuid() != 0) GTEST_SKIP() << "only root may give a folder away";
  const std::string folder = path + ".d";
  ASSERT_EQ(mkdir(folder.c_str(), 0755), 0);
  ASSERT_EQ(chown(folder.c_str(), 7, 7), 0);
  EXPECT_TRUE(CheckDaemon(folder + "/link.sock", 7, std::nullopt).ok());
  EXPECT_FALSE(CheckDaemon(folder + "/link.sock", 8, std::nullopt).ok());
  rmdir(folder.c_str());
}

TEST_F(SharingTest, AProcessThatHangsLosesItsLeaseWhenItEnds) {
  Serve();
  RawProcess hangs(socket_);
  hangs.Hello("hangs", 1);
  hangs.Report(kLots);
  const auto lease = hangs.Receive();
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(lease->lease().bytes(), kBudget);
  SharingProcess waits(socket_, "waits");
  waits.Want(kLots);
  EXPECT_TRUE(waits.AwaitBytes(kBudget));
  EXPECT_TRUE(AwaitMetric("sluice_sharing_expirations_total", "hangs", 1));
  EXPECT_EQ(Metric("sluice_sharing_lease_bytes", "hangs"), 0);
  hangs.Report(kLots);
  EXPECT_TRUE(waits.AwaitBytes(16'000));
  EXPECT_TRUE(AwaitEvents({"joined hangs", "joined waits", "expired hangs", "returned hangs"}));
}

TEST_F(SharingTest, WhatIsNotOurProtocolIsRefused) {
  Serve();
  RawProcess garbage(socket_);
  garbage.Bytes(std::string(100, '\xff'));
  EXPECT_THAT(garbage.Refusal(), HasSubstr("is not sluice.v1.ToLinkDaemon"));
  RawProcess too_long(socket_);
  too_long.Bytes(std::string(5000, 'x'));
  EXPECT_THAT(too_long.Refusal(), HasSubstr("5000 bytes"));
  RawProcess silent(socket_);
  silent.Report(1);
  EXPECT_THAT(silent.Refusal(), HasSubstr("a hello has to come first"));
  RawProcess twice(socket_);
  twice.Hello("twice", 1);
  twice.Hello("twice", 1);
  EXPECT_THAT(twice.Refusal(), HasSubstr("a hello has to come first"));
  RawProcess unnamed(socket_);
  unnamed.Hello("a b", 1);
  EXPECT_THAT(unnamed.Refusal(), HasSubstr("application: \"a b\" is not"));
  RawProcess weightless(socket_);
  weightless.Hello("a", 0);
  EXPECT_THAT(weightless.Refusal(), HasSubstr("weight: 0 is outside of"));
  RawProcess same_class(socket_);
  same_class.Hello("a", 1, {"batch", "batch"});
  EXPECT_THAT(same_class.Refusal(), HasSubstr("classes: \"batch\" comes twice"));
  RawProcess unnamed_class(socket_);
  unnamed_class.Hello("a", 1, {"a b"});
  EXPECT_THAT(unnamed_class.Refusal(), HasSubstr("classes: \"a b\" is not"));
  RawProcess classes(socket_);
  classes.Hello("a", 1, std::vector<std::string>(17, "x"));
  EXPECT_THAT(classes.Refusal(), HasSubstr("classes: 17 are more than 16"));
  EXPECT_EQ(Metric("sluice_sharing_refusals_total", "protocol"), 9);
}

TEST_F(SharingTest, ClassesAreSharedByWeightAndCounted) {
  Serve();
  RawProcess first(socket_);
  RawProcess second(socket_);
  first.Hello("search", 1, {"interactive", "batch"});
  second.Hello("feeds", 1, {"batch"});
  second.ReportClasses({{.weight = 1, .demand_bytes = kLots}});
  ASSERT_TRUE(second.Receive().ok());
  first.ReportClasses({{.weight = 3, .demand_bytes = kLots}, {.weight = 1, .demand_bytes = kLots}});
  // Interactive has 3/4 of what the first brings, batch 1/4 and what the second brings, which both divide.
  EXPECT_THAT(first.ClassWeights(),
              ElementsAre(DoubleNear(4 * 0.75 / 1.375, 0.01), DoubleNear(4 * 0.625 / 1.375, 0.01)));
  EXPECT_TRUE(AwaitMetric("sluice_sharing_class_demand_bytes", "batch", 2 * kLots));
  second.ReportClasses({{.weight = 1, .demand_bytes = kLots, .received_bytes = 7000}});
  EXPECT_TRUE(AwaitMetric("sluice_sharing_class_received_bytes_total", "batch", 7000));
  EXPECT_EQ(Metric("sluice_sharing_class_received_bytes_total", "interactive"), 0);
}

TEST_F(SharingTest, ADaemonThatTakesConnectionsAndHangsLeavesTheStartShare) {
  const auto listening = ListeningSocket::Open(socket_, 0600, std::nullopt);
  ASSERT_TRUE(listening.ok()) << listening.status();
  SharingProcess process(socket_, "search");
  process.Want(kLots);
  EXPECT_TRUE(process.AwaitBytes(4000));
  EXPECT_TRUE(process.AwaitState(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(SharingTest, MetricsAreByApplication) {
  Serve();
  SharingProcess first(socket_, "search");
  SharingProcess second(socket_, "search");
  SharingProcess other(socket_, "feeds");
  first.SetInFlight(5000);
  first.Want(40'000);
  second.Want(2000);
  ASSERT_TRUE(first.Await([](const BudgetLease& lease) { return lease.bytes > 20'000; }));
  first.SetInFlight(1000);
  first.Want(0);
  ASSERT_TRUE(second.AwaitState(absl::StatusCode::kOk));
  ASSERT_TRUE(other.AwaitState(absl::StatusCode::kOk));
  EXPECT_TRUE(AwaitMetric("sluice_sharing_received_bytes_total", "search", 4000));
  EXPECT_TRUE(AwaitMetric("sluice_sharing_in_flight_bytes", "search", 1000));
  EXPECT_TRUE(AwaitMetric("sluice_sharing_demand_bytes", "search", 2000));
  EXPECT_EQ(Metric("sluice_sharing_processes", "search"), 2);
  EXPECT_EQ(Metric("sluice_sharing_processes", "feeds"), 1);
  EXPECT_EQ(Metric("sluice_sharing_budget_bytes"), kBudget);
  EXPECT_LE(Metric("sluice_sharing_lease_bytes", "search") + Metric("sluice_sharing_lease_bytes", "feeds"), kBudget);
  EXPECT_GT(Metric("sluice_sharing_lease_changes_total", "search"), 0);
}

TEST_F(SharingTest, ShowsTheMetricsThatAreDocumented) {
  Serve();
  SharingProcess process(socket_, "search");
  ASSERT_TRUE(process.AwaitState(absl::StatusCode::kOk));
  RawProcess with_classes(socket_);
  with_classes.Hello("search", 1, {"interactive", "batch"});
  ASSERT_TRUE(AwaitMetric("sluice_sharing_class_demand_bytes", "batch", 0));
  std::ifstream file(SLUICE_METRICS_DOC);
  auto catalogues = ParseCatalogue({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
  MetricCatalogue documented = catalogues.at("Shared link");
  documented.merge(catalogues.at("Both"));
  const ProcessMetrics process_metrics;
  EXPECT_EQ(CatalogueOf(Scrape({&registry_, server_.get(), &process_metrics}),
                        {"version", "compiler", "application", "class"}),
            documented);
}

}  // namespace
}  // namespace sluice
