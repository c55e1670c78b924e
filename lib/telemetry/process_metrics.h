#pragma once

#include <string>
#include <utility>
#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"

namespace sluice {

// The process metrics that Prometheus' own clients export (process_cpu_seconds_total, process_resident_memory_bytes,
// process_open_fds, process_start_time_seconds). They are read from /proc at each scrape; prometheus-cpp has none.
// Values that cannot be read are left out. Stateless and thread-safe.
class ProcessMetrics : public prometheus::Collectable {
 public:
  // Tests pass a folder other than /proc.
  explicit ProcessMetrics(std::string proc = "/proc") : proc_(std::move(proc)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::string proc_;
};

}  // namespace sluice
