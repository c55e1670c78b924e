#include "lib/telemetry/metric_families.h"

#include "lib/telemetry/build_info.h"
#include "prometheus/gauge.h"

namespace sluice {

prometheus::Counter& MakeCounter(prometheus::Registry& registry, const std::string& name, const std::string& help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

prometheus::Histogram& MakeHistogram(prometheus::Registry& registry, const std::string& name, const std::string& help,
                                     const prometheus::Histogram::BucketBoundaries& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
}

prometheus::MetricFamily MakeFamily(prometheus::MetricType type, const std::string& name, const std::string& help,
                                    double value) {
  prometheus::MetricFamily family{.name = name, .help = help, .type = type, .metric = {}};
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  metric.counter.value = metric.gauge.value = value;
  return family;
}

prometheus::MetricFamily MakeFamily(prometheus::MetricType type, const std::string& name, const std::string& help,
                                    const std::string& label, const std::vector<LabelledValue>& values) {
  prometheus::MetricFamily family{.name = name, .help = help, .type = type, .metric = {}};
  for (const LabelledValue& labelled : values) {
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label.push_back({label, labelled.label_value});
    metric.counter.value = metric.gauge.value = labelled.value;
  }
  return family;
}

void MakeBuildInfo(prometheus::Registry& registry) {
  prometheus::BuildGauge()
      .Name("sluice_build_info")
      .Help("Always 1; the labels say which build of Sluice this is.")
      .Register(registry)
      .Add({{"version", std::string(BuildVersion())}, {"compiler", std::string(BuildCompiler())}})
      .Set(1);
}

prometheus::Counter& MakeBreachCounter(prometheus::Registry& registry) {
  return MakeCounter(registry, "sluice_invariant_breaches_total",
                     "Conditions on Sluice's own state that did not hold. Each is a defect of Sluice.");
}

prometheus::Histogram::BucketBoundaries TransferTimeBuckets() {
  return {1e-4, 2.5e-4, 5e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3, 7.5e-3, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1,
          0.15, 0.2,    0.25, 0.3,  0.4,    0.5,  0.75, 1,    1.5,    2,    3,     5,    10,   20,   30,    60};
}

}  // namespace sluice
