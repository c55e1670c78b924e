#include "lib/telemetry/labelled_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/storage/serving/worker_metrics.h"
#include "prometheus/registry.h"
#include "tests/unit/telemetry/scrape.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LabelledMetricsTest, EverySampleHasTheLabelBesideItsOwn) {
  prometheus::Registry registry;
  WorkerMetrics worker(registry);
  worker.CountCall(WorkerOutcome::kOk);
  const LabelledMetrics labelled(registry, "level", "mla");
  EXPECT_THAT(ScrapeText({&labelled}),
              AllOf(HasSubstr("sluice_worker_sru_requests_total{outcome=\"ok\",level=\"mla\"} 1\n"),
                    HasSubstr("sluice_worker_sent_bytes_total{level=\"mla\"} 0\n")));
  for (const auto& family : Scrape({&labelled})) {
    for (const auto& metric : family.metric) EXPECT_EQ(metric.label.back().value, "mla") << family.name;
  }
}

}  // namespace
}  // namespace sluice
