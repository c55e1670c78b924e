#pragma once

#include <string>
#include <utility>
#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"

namespace sluice {

// Adds one label to all metrics: the level of the process in an aggregation tree. Thread-safe if the metrics are.
// Rejected: constant labels at the registration of each family, which every class that registers one would need, and
// would omit metrics that are not in a registry.
class LabelledMetrics : public prometheus::Collectable {
 public:
  // The metrics must outlive it.
  LabelledMetrics(const prometheus::Collectable& metrics, std::string label, std::string value)
      : metrics_(metrics), label_(std::move(label)), value_(std::move(value)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const prometheus::Collectable& metrics_;
  const std::string label_;
  const std::string value_;
};

}  // namespace sluice
