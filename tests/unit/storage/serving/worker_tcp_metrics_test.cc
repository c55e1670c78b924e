#include "lib/storage/serving/worker_tcp_metrics.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tcp/tcp_pair.h"
#include "tests/unit/telemetry/metric_catalogue.h"
#include "tests/unit/telemetry/scrape.h"

namespace sluice {
namespace {

// Returns every value of a scrape, by its name and the value of its only label: "sluice_worker_tcp_rtt_seconds min".
std::map<std::string, double> Values(const WorkerTcpMetrics& metrics) {
  std::map<std::string, double> values;
  for (const prometheus::MetricFamily& family : metrics.Collect()) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      const std::string label = metric.label.empty() ? "" : " " + metric.label.front().value;
      const bool is_counter = family.type == prometheus::MetricType::Counter;
      values[family.name + label] = is_counter ? metric.counter.value : metric.gauge.value;
    }
  }
  return values;
}

// Returns a connection that no process on this host has.
TcpSocket Socket(uint64_t number, uint32_t retransmits, std::optional<uint16_t> rtos) {
  return {.inode = (uint64_t{1} << 40) + number, .info = {.retransmitted_packets = retransmits, .rtos = rtos}};
}

class WorkerTcpMetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto diag = SocketDiag::Open(); !diag.ok()) GTEST_SKIP() << diag.status();
  }

  double Retransmits() const { return Values(metrics_).at("sluice_worker_tcp_retransmitted_packets_total"); }
  double Rtos() const { return Values(metrics_).at("sluice_worker_tcp_rtos_total"); }

  WorkerTcpMetrics metrics_;
};

TEST_F(WorkerTcpMetricsTest, EveryFamilyIsThereFromTheStart) {
  const MetricCatalogue catalogue = CatalogueOf(metrics_.Collect(), {});
  const MetricCatalogue expected = {
      {"sluice_worker_tcp_connections", {.type = "gauge"}},
      {"sluice_worker_tcp_retransmitted_packets_total", {.type = "counter"}},
      {"sluice_worker_tcp_rtos_total", {.type = "counter"}},
      {"sluice_worker_tcp_rtt_seconds", {.type = "gauge", .labels = {{"stat", {"min", "smoothed"}}}}},
      {"sluice_worker_tcp_congestion_window_packets", {.type = "gauge", .labels = {{"stat", {"min", "mean", "max"}}}}},
      {"sluice_worker_tcp_losses_total", {.type = "counter", .labels = {{"feedback", {"none", "some", "probe"}}}}},
      {"sluice_worker_tcp_lost_retransmits_total", {.type = "counter"}},
      {"sluice_worker_tcp_spurious_rtos_total", {.type = "counter"}},
      {"sluice_worker_tcp_loss_probes_total", {.type = "counter"}},
  };
  EXPECT_EQ(catalogue, expected);
}

TEST_F(WorkerTcpMetricsTest, OfNoConnectionEverythingIsZero) {
  const auto values = Values(metrics_);
  EXPECT_EQ(values.at("sluice_worker_tcp_connections"), 0);
  EXPECT_EQ(values.at("sluice_worker_tcp_retransmitted_packets_total"), 0);
  EXPECT_EQ(values.at("sluice_worker_tcp_rtos_total"), 0);
  EXPECT_EQ(values.at("sluice_worker_tcp_rtt_seconds min"), 0);
  EXPECT_EQ(values.at("sluice_worker_tcp_congestion_window_packets max"), 0);
}

TEST_F(WorkerTcpMetricsTest, ConnectionsAreThoseOfTheMomentOfTheScrape) {
  EXPECT_EQ(Values(metrics_).at("sluice_worker_tcp_connections"), 0);
  auto pair = std::make_unique<TcpPair>();
  EXPECT_EQ(Values(metrics_).at("sluice_worker_tcp_connections"), 2);
  pair.reset();
  EXPECT_EQ(Values(metrics_).at("sluice_worker_tcp_connections"), 0);
}

TEST_F(WorkerTcpMetricsTest, TellsTheSpreadOverConnections) {
  std::deque<TcpPair> pairs(5);
  pairs.front().SendFromServer(2 << 20);  // its window grows
  for (TcpPair& pair : pairs) pair.SendFromClient(1);
  const auto before = SocketDiag::Open()->OwnConnections();
  const auto values = Values(metrics_);
  const auto after = SocketDiag::Open()->OwnConnections();
  ASSERT_TRUE(before.ok() && after.ok());
  ASSERT_EQ(before->size(), 10u);
  std::map<uint64_t, TcpInfo> infos;
  for (const TcpSocket& socket : *before) infos[socket.inode] = socket.info;
  double least_rtt = 1;
  double rtt = 0;
  double least = 1e9;
  double mean = 0;
  double most = 0;
  for (const TcpSocket& socket : *after) {
    const TcpInfo& info = infos.at(socket.inode);
    // Nothing is sent, so the values do not change.
    ASSERT_EQ(info.congestion_window_packets, socket.info.congestion_window_packets);
    ASSERT_EQ(info.smoothed_rtt, socket.info.smoothed_rtt);
    least_rtt = std::min(least_rtt, absl::ToDoubleSeconds(info.min_rtt.value_or(info.smoothed_rtt)));
    rtt += absl::ToDoubleSeconds(info.smoothed_rtt) / 10;
    least = std::min<double>(least, info.congestion_window_packets);
    most = std::max<double>(most, info.congestion_window_packets);
    mean += info.congestion_window_packets / 10.0;
  }
  EXPECT_LT(least, most) << "nothing is spread";
  EXPECT_DOUBLE_EQ(values.at("sluice_worker_tcp_congestion_window_packets min"), least);
  EXPECT_NEAR(values.at("sluice_worker_tcp_congestion_window_packets mean"), mean, 1e-9);
  EXPECT_DOUBLE_EQ(values.at("sluice_worker_tcp_congestion_window_packets max"), most);
  EXPECT_GT(least_rtt, 0);
  EXPECT_DOUBLE_EQ(values.at("sluice_worker_tcp_rtt_seconds min"), least_rtt);
  EXPECT_NEAR(values.at("sluice_worker_tcp_rtt_seconds smoothed"), rtt, 1e-9);
}

TEST_F(WorkerTcpMetricsTest, CountsOnWhileConnectionsComeAndGo) {
  metrics_.Update({Socket(1, 5, 1), Socket(2, 1, 0)});
  metrics_.Update({Socket(1, 7, 2), Socket(3, 10, 3)});  // 2 has closed
  metrics_.Update({Socket(3, 10, 4)});
  metrics_.Update({});
  metrics_.Update({Socket(4, 100, 10)});
  EXPECT_EQ(Retransmits(), 5 + 1 + 2 + 10 + 100);
  EXPECT_EQ(Rtos(), 1 + 1 + 3 + 1 + 10);
  EXPECT_EQ(Retransmits(), 118) << "a scrape adds nothing";
}

TEST_F(WorkerTcpMetricsTest, CountsOnWhereTheKernelsCountsWrap) {
  metrics_.Update({Socket(1, 0xffff'fff0, 65530)});
  metrics_.Update({Socket(1, 0x10, 4)});
  EXPECT_EQ(Retransmits(), 0x1'0000'0010);
  EXPECT_EQ(Rtos(), 65540);
}

TEST_F(WorkerTcpMetricsTest, LeavesOutTimeoutsWhereTheKernelTellsOfNone) {
  TcpPair pair;
  const auto sockets = SocketDiag::Open()->OwnConnections();
  ASSERT_TRUE(sockets.ok());
  const bool kernel_tells = sockets->front().info.rtos.has_value();
  const auto values = Values(metrics_);
  EXPECT_EQ(values.contains("sluice_worker_tcp_rtos_total"), kernel_tells);
  EXPECT_TRUE(values.contains("sluice_worker_tcp_retransmitted_packets_total"));
}

}  // namespace
}  // namespace sluice
