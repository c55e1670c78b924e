#include "tests/unit/telemetry/metric_catalogue.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/link/link_metrics.h"
#include "lib/storage/blocks/mid_level_metrics.h"
#include "lib/storage/serving/access_control.h"
#include "lib/storage/serving/worker_metrics.h"
#include "lib/storage/serving/worker_tcp_metrics.h"
#include "lib/telemetry/config_metrics.h"
#include "lib/telemetry/process_metrics.h"
#include "tests/unit/telemetry/scrape.h"

namespace sluice {
namespace {

// The metrics of both programs, from their own collectables.
class MetricCatalogueTest : public ::testing::Test {
 protected:
  MetricCatalogueTest() {
    aggregator_metrics_.Tunnels("10.0.0.0/8");
    // Include a class of traffic, a connection, a shared link and all faults: otherwise the classes, the round trip,
    // the lease and the faults are missing.
    aggregator_metrics_.SetGaugeSource([] {
      LinkGauges gauges{
          .leased = true, .connections = 1, .min_rtt = absl::ZeroDuration(), .smoothed_rtt = absl::ZeroDuration()};
      gauges.classes = {{.name = "queries"}};
      for (int fault = 0; fault < kWorkerFaults; ++fault) {
        gauges.worker_faults.emplace_back("10.0.0.1:20000", static_cast<WorkerFault>(fault));
      }
      return gauges;
    });
  }

  prometheus::Registry aggregator_registry_;
  LinkMetrics aggregator_metrics_{aggregator_registry_};
  ConfigMetrics config_metrics_{aggregator_registry_};
  prometheus::Registry mid_level_registry_;
  MidLevelMetrics mid_level_metrics_{mid_level_registry_};
  prometheus::Registry worker_registry_;
  WorkerMetrics worker_metrics_{worker_registry_};
  AccessControl worker_access_{AccessRules(), worker_registry_, nullptr};
  WorkerTcpMetrics worker_tcp_metrics_;
  ProcessMetrics process_metrics_;
};

MetricCatalogue Documented(const std::string& program) {
  std::ifstream file(SLUICE_METRICS_DOC);
  auto catalogues = ParseCatalogue({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
  MetricCatalogue catalogue = catalogues.at(program);
  if (program != "Mid-level aggregator") catalogue.merge(catalogues.at("Both"));
  return catalogue;
}

std::set<std::string> FreeLabels() {
  return {"version", "compiler", "worker", "class", "workers"};
}

TEST_F(MetricCatalogueTest, TheAggregatorShowsWhatIsDocumented) {
  const auto scraped = Scrape({&aggregator_registry_, &aggregator_metrics_, &process_metrics_});
  EXPECT_EQ(CatalogueOf(scraped, FreeLabels()), Documented("Aggregator"));
}

TEST_F(MetricCatalogueTest, TheWorkerShowsWhatIsDocumented) {
  const auto scraped = Scrape({&worker_registry_, &worker_tcp_metrics_, &process_metrics_});
  EXPECT_EQ(CatalogueOf(scraped, FreeLabels()), Documented("Worker"));
}

// A mid-level aggregator exports these metrics in addition to the metrics of an aggregator and of a worker.
TEST_F(MetricCatalogueTest, TheMidLevelAggregatorShowsWhatIsDocumented) {
  EXPECT_EQ(CatalogueOf(Scrape({&mid_level_registry_}), FreeLabels()), Documented("Mid-level aggregator"));
}

// Passes the text through a file, because promtool reads only standard input.
std::string CheckWithPromtool(const std::string& text, int& exit_status) {
  const std::string path = ::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::ofstream(path) << text;
  FILE* pipe = popen(("promtool check metrics < '" + path + "' 2>&1").c_str(), "r");
  if (pipe == nullptr) return "promtool did not start";
  std::string output;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
  exit_status = pclose(pipe);
  return output;
}

class PromtoolTest : public MetricCatalogueTest {
 protected:
  void SetUp() override {
    if (std::system("promtool --version >/dev/null 2>&1") != 0) {
      GTEST_SKIP() << "promtool is not installed; it is in Debian's package prometheus";
    }
  }
};

TEST_F(PromtoolTest, FindsNothingWrongWithTheAggregator) {
  int exit_status = -1;
  const std::string text = ScrapeText({&aggregator_registry_, &aggregator_metrics_, &process_metrics_});
  EXPECT_EQ(CheckWithPromtool(text, exit_status), "");
  EXPECT_EQ(exit_status, 0);
}

TEST_F(PromtoolTest, FindsNothingWrongWithTheWorker) {
  int exit_status = -1;
  EXPECT_EQ(CheckWithPromtool(ScrapeText({&worker_registry_, &worker_tcp_metrics_, &process_metrics_}), exit_status),
            "");
  EXPECT_EQ(exit_status, 0);
}

TEST_F(PromtoolTest, FindsNothingWrongWithAMidLevelAggregator) {
  int exit_status = -1;
  prometheus::Registry registry;
  const LinkMetrics aggregator(registry);
  const WorkerMetrics worker(registry);
  const MidLevelMetrics mid_level(registry);
  EXPECT_EQ(
      CheckWithPromtool(ScrapeText({&registry, &aggregator, &process_metrics_, &worker_tcp_metrics_}), exit_status),
      "");
  EXPECT_EQ(exit_status, 0);
}

TEST_F(PromtoolTest, FindsWhatIsWrong) {
  int exit_status = 0;
  const std::string text = "# HELP sluice_bad Bad.\n# TYPE sluice_bad counter\nsluice_bad 1\n";
  EXPECT_THAT(CheckWithPromtool(text, exit_status), ::testing::HasSubstr("sluice_bad"));
  EXPECT_NE(exit_status, 0);
}

}  // namespace
}  // namespace sluice
