#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"
#include "prometheus/metric_type.h"
#include "prometheus/registry.h"

// Functions that make the metrics of Sluice. Every handle is resolved once, since a look-up by labels takes a lock and
// a hash. docs/reference/metrics.md is the catalogue; a test compares the two.
namespace sluice {

// Makes the counters of one family, one for each value of its only label, in the order of `values`.
template <size_t kCount>
std::array<prometheus::Counter*, kCount> MakeCounters(prometheus::Registry& registry, const std::string& name,
                                                      const std::string& help, const std::string& label,
                                                      const std::array<const char*, kCount>& values) {
  auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  std::array<prometheus::Counter*, kCount> counters;
  for (size_t i = 0; i < kCount; ++i) counters[i] = &family.Add({{label, values[i]}});
  return counters;
}

prometheus::Counter& MakeCounter(prometheus::Registry& registry, const std::string& name, const std::string& help);
prometheus::Histogram& MakeHistogram(prometheus::Registry& registry, const std::string& name, const std::string& help,
                                     const prometheus::Histogram::BucketBoundaries& buckets);

// Makes a collected family for values that are stored elsewhere: one value, or one for each value of its only label.
prometheus::MetricFamily MakeFamily(prometheus::MetricType type, const std::string& name, const std::string& help,
                                    double value);
struct LabelledValue {
  template <class Number>
  LabelledValue(std::string label, Number number) : label_value(std::move(label)), value(static_cast<double>(number)) {}
  std::string label_value;
  double value = 0;
};
prometheus::MetricFamily MakeFamily(prometheus::MetricType type, const std::string& name, const std::string& help,
                                    const std::string& label, const std::vector<LabelledValue>& values);

// Makes sluice_build_info, which is always 1; its labels identify the build.
void MakeBuildInfo(prometheus::Registry& registry);

// Makes sluice_invariant_breaches_total, for state machines that check their invariants.
prometheus::Counter& MakeBreachCounter(prometheus::Registry& registry);

// Buckets in seconds, from 100 us to a minute, dense around the usual times of blocks and SRUs. The edges at 0.2 and
// 0.25 separate transfers that waited for one TCP retransmission timeout (200 ms on Linux).
prometheus::Histogram::BucketBoundaries TransferTimeBuckets();

}  // namespace sluice
