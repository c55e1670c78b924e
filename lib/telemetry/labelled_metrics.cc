#include "lib/telemetry/labelled_metrics.h"

namespace sluice {

std::vector<prometheus::MetricFamily> LabelledMetrics::Collect() const {
  std::vector<prometheus::MetricFamily> families = metrics_.Collect();
  for (prometheus::MetricFamily& family : families) {
    for (prometheus::ClientMetric& metric : family.metric) metric.label.push_back({label_, value_});
  }
  return families;
}

}  // namespace sluice
