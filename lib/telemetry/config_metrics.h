#pragma once

#include <array>
#include <cstdint>

#include "absl/time/time.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/registry.h"

namespace sluice {

// The outcome of a change of the config file; label values are in config_metrics.cc, in this order.
enum class ReloadOutcome { kApplied, kInvalid, kRefused };

// Metrics of the config that a process uses. There is one for each process. Thread-safe.
class ConfigMetrics {
 public:
  explicit ConfigMetrics(prometheus::Registry& registry);

  void CountReload(ReloadOutcome outcome) { reloads_[static_cast<size_t>(outcome)]->Increment(); }

  // The config with this hash is in force since `since`, or was found to be unchanged then.
  void SetInForce(uint32_t hash, absl::Time since);

 private:
  const std::array<prometheus::Counter*, 3> reloads_;
  prometheus::Gauge& last_success_;
  prometheus::Gauge& hash_;
};

}  // namespace sluice
