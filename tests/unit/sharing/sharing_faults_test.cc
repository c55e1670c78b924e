#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/sharing/raw_process.h"
#include "tests/unit/sharing/sharing_fixture.h"

// Behavior with processes and daemons that hang, flood, or lie.
namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// Returns the first lease of a daemon, which answers `report`: the whole budget.
v1::LinkLease LeaseOfAll(const v1::LinkReport& report, std::chrono::nanoseconds valid) {
  v1::LinkLease lease;
  lease.set_id(1);
  lease.set_bytes(kBudget);
  lease.set_valid_ns(valid.count());
  lease.set_report_sent_ns(report.sent_ns());
  lease.set_link_bytes(kBudget);
  lease.set_safe_bytes(8000);
  return lease;
}

TimePoint Now() {
  return std::chrono::steady_clock::now();
}

TEST_F(SharingTest, AProcessThatWasStoppedAsksBeforeItSends) {
  LeaseServer::Options options = Options();
  options.shares.lease_time = 100ms;
  Serve(options);
  SharingProcess stopped(socket_, "stopped", 1);
  ASSERT_TRUE(stopped.AwaitState(absl::StatusCode::kOk));
  SharingProcess other(socket_, "other", 3);
  other.Want(kLots);
  ASSERT_TRUE(other.AwaitBytes(kBudget));
  const int64_t safe_shares = stopped.safe_shares();
  stopped.HangFor(250ms);
  ASSERT_TRUE(AwaitMetric("sluice_sharing_expirations_total", "stopped", 1));
  const TimePoint hung_at = Now();
  ASSERT_TRUE(stopped.Await([&](const BudgetLease& lease) { return lease.until > hung_at + 100ms; }));
  EXPECT_EQ(stopped.safe_shares(), safe_shares);
}

TEST_F(SharingTest, AShareWithoutADaemonIsRenewed) {
  SharingProcess process(socket_, "search");
  ASSERT_TRUE(process.AwaitBytes(4000));
  const TimePoint first = process.lease().until;
  EXPECT_LE(first, Now() + 200ms);
  EXPECT_TRUE(process.Await([&](const BudgetLease& lease) { return lease.until > first + 300ms; }));
}

TEST_F(SharingTest, AndWithOneThatHangs) {
  const auto listening = ListeningSocket::Open(socket_, 0600, std::nullopt);
  ASSERT_TRUE(listening.ok()) << listening.status();
  SharingProcess process(socket_, "search");
  ASSERT_TRUE(process.AwaitBytes(4000));
  const TimePoint first = process.lease().until;
  EXPECT_LE(first, Now() + 200ms);
  EXPECT_TRUE(process.Await([&](const BudgetLease& lease) { return lease.until > first + 300ms; }));
}

TEST_F(SharingTest, AProcessThatIsStoppedDoesNotGoByItsSafeShareWhenADaemonIsBack) {
  SharingProcess stopped(socket_, "stopped");
  ASSERT_TRUE(stopped.AwaitBytes(4000));
  stopped.HangFor(700ms);
  const int64_t safe_shares = stopped.safe_shares();
  LeaseServer::Options options = Options();
  options.shares.start_grace = 300ms;
  Serve(options);
  SharingProcess other(socket_, "other");
  other.Want(kLots);
  ASSERT_TRUE(other.AwaitBytes(kBudget));
  EXPECT_LT(stopped.safe_share().until, Now());
  EXPECT_TRUE(stopped.AwaitState(absl::StatusCode::kOk));
  EXPECT_EQ(stopped.safe_shares(), safe_shares);
}

TEST_F(SharingTest, ADaemonThatCannotBeReachedMayDivideTheLink) {
  const auto listening = ListeningSocket::Open(socket_, 0600, std::nullopt);
  ASSERT_TRUE(listening.ok()) << listening.status();
  std::vector<int> waiting;
  for (auto fd = ConnectPacketSocket(socket_); fd.ok(); fd = ConnectPacketSocket(socket_)) waiting.push_back(*fd);
  const TimePoint start = Now();
  SharingProcess process(socket_, "search");
  EXPECT_TRUE(process.AwaitState(absl::StatusCode::kFailedPrecondition));
  EXPECT_TRUE(process.AwaitBytes(4000));
  EXPECT_GE(Now() - start, 490ms);
  for (const int fd : waiting) close(fd);
}

TEST_F(SharingTest, AProcessThatFallsBackSaysSoAtOnce) {
  RawDaemon daemon(socket_);
  SharingProcess process(socket_, "search");
  const auto first = daemon.AwaitReport([](const v1::LinkReport&) { return true; });
  ASSERT_TRUE(first.has_value());
  v1::LinkLease lease;
  lease.set_id(1);
  lease.set_bytes(1000);
  lease.set_valid_ns(400'000'000);
  lease.set_report_sent_ns(first->sent_ns() - 50'000'000);  // between two regular reports
  lease.set_link_bytes(kBudget);
  lease.set_safe_bytes(8000);
  daemon.Lease(lease);
  const auto report = daemon.AwaitReport([](const v1::LinkReport& report) { return report.limit_bytes() == 8000; });
  ASSERT_TRUE(report.has_value());
  EXPECT_LE(TimePoint(std::chrono::nanoseconds(report->sent_ns())), process.safe_share_applied_at());
}

// The name consists of two-byte characters, and an error that quotes it is cut at an even number of characters.
TEST_F(SharingTest, AProcessWhoseNameIsTooLongHearsWhy) {
  Serve();
  std::string name = "x";
  for (int i = 0; i < 100; ++i) name += "\u00e9";
  RawProcess process(socket_);
  process.Hello(name, 1);
  EXPECT_THAT(process.Refusal(), ::testing::HasSubstr("is not 1 to 64 of [A-Za-z0-9._-]"));
}

// A process would use an endless lease after the daemon has given its bytes to others, and would only send reports with
// a lease of a nanosecond.
TEST_F(SharingTest, ALeaseThatMakesNoSenseIsRefused) {
  const std::vector<std::pair<std::string, std::function<void(v1::LinkLease&)>>> spoils{
      {"valid_ns is 9223372036854775807", [](auto& lease) { lease.set_valid_ns(INT64_MAX); }},
      {"valid_ns is 0", [](auto& lease) { lease.set_valid_ns(0); }},
      {"valid_ns is 1;", [](auto& lease) { lease.set_valid_ns(1); }},
      {"report_sent_ns is 9223372036854775807", [](auto& lease) { lease.set_report_sent_ns(INT64_MAX); }},
      {"report_sent_ns is -1", [](auto& lease) { lease.set_report_sent_ns(-1); }},
      {"link_bytes is 9223372036854775807", [](auto& lease) { lease.set_link_bytes(INT64_MAX); }},
      {"link_bytes is 0", [](auto& lease) { lease.set_link_bytes(0); }},
      {"bytes is -1", [](auto& lease) { lease.set_bytes(-1); }}};
  for (const auto& [said, spoil] : spoils) {
    RawDaemon daemon(socket_);
    SharingProcess process(socket_, "search");
    const auto report = daemon.AwaitReport([](const v1::LinkReport&) { return true; });
    ASSERT_TRUE(report.has_value()) << said;
    v1::LinkLease lease = LeaseOfAll(*report, 250ms);
    spoil(lease);
    daemon.Lease(lease);
    ASSERT_TRUE(process.AwaitState(absl::StatusCode::kInvalidArgument)) << said << "; it is " << process.state();
    EXPECT_THAT(std::string(process.state().message()), ::testing::HasSubstr(said));
    EXPECT_FALSE(process.leased()) << said;
  }
}

TEST_F(SharingTest, AProcessReportsAfterThePauseOfItsLease) {
  RawDaemon daemon(socket_);
  SharingProcess process(socket_, "search");
  process.Want(kLots);
  const auto first = daemon.AwaitReport([](const v1::LinkReport&) { return true; });
  ASSERT_TRUE(first.has_value());
  v1::LinkLease lease = LeaseOfAll(*first, 400ms);
  lease.set_report_pause_ns(50'000'000);
  daemon.Lease(lease);
  const auto before = daemon.AwaitReport([](const v1::LinkReport& report) { return report.acknowledged() == 1; });
  const auto after = daemon.AwaitReport([](const v1::LinkReport&) { return true; });
  ASSERT_TRUE(before.has_value() && after.has_value());
  EXPECT_GE(after->sent_ns() - before->sent_ns(), 50'000'000);
}

TEST_F(SharingTest, WhatADaemonMissedIsSaidAgain) {
  RawDaemon daemon(socket_);
  SharingProcess process(socket_, "search");
  const auto first = daemon.AwaitReport([](const v1::LinkReport&) { return true; });
  ASSERT_TRUE(first.has_value());
  // Its regular reports are further apart than this test lasts.
  daemon.Lease(LeaseOfAll(*first, 1000s));
  ASSERT_TRUE(process.AwaitBytes(kBudget));
  const auto await_reports = [&](int64_t reports) {
    return WaitUntil([&] { return process.reports() >= reports; }, kPatience);
  };
  process.Want(kLots);
  ASSERT_TRUE(await_reports(600));  // 600 reports exceed the capacity of the socket
  const int64_t before = process.reports();
  process.Want(0);
  ASSERT_TRUE(await_reports(before + 2));
  EXPECT_TRUE(daemon.AwaitReport([&](const v1::LinkReport& report) {
    return report.sent_ns() > first->sent_ns() && report.acknowledged() == 1 && report.demand_bytes() == 0;
  }));
}

TEST_F(SharingTest, OneThatSaysALotDoesNotKeepTheOthersWaiting) {
  Serve();
  absl::Notification all_said;
  boost::asio::post(io_thread_.context(), [&] { all_said.WaitForNotification(); });
  RawProcess flood(socket_);
  flood.Hello("flood", 1);
  for (int i = 0; i < 100; ++i) flood.Report(kLots);
  flood.Hello("flood", 1);  // the second hello is refused
  RawProcess quiet(socket_);
  quiet.Hello("quiet", 1);
  all_said.Notify();
  EXPECT_TRUE(AwaitEvents({"joined flood", "joined quiet", "refused flood"}));
}

TEST_F(SharingTest, WhatAProcessReceivedBeforeItJoinedIsNotCounted) {
  Serve();
  for (const int64_t received_bytes : {int64_t{-1000}, std::numeric_limits<int64_t>::min(), int64_t{5000}}) {
    RawProcess process(socket_);
    process.Hello("search", 1);
    v1::ToLinkDaemon message;
    message.mutable_report()->set_sent_ns(1);
    message.mutable_report()->set_received_bytes(received_bytes);
    EXPECT_TRUE(process.Send(message));
    ASSERT_TRUE(process.Receive().ok());
    EXPECT_EQ(Metric("sluice_sharing_received_bytes_total", "search"), 0);
  }
}

}  // namespace
}  // namespace sluice
