#pragma once

#include <cstdint>
#include <functional>

#include "sluice/v1/config.pb.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregator/aggregator_config.h"
#include "lib/telemetry/config_metrics.h"

namespace sluice {

// Returns FailedPrecondition that names the fields, with their old and new values, if `after` cannot take the place of
// `before` in a process that runs.
absl::Status CheckReloadable(const v1::AggregatorConfig& before, const v1::AggregatorConfig& after);

// Returns a hash of the config in force. It is the same for two aggregators of one version with the same config.
uint32_t ConfigHash(const v1::AggregatorConfig& config);

// Takes over what has changed in the config, all of it or nothing, and tells the log and the metrics. There is one for
// each process. Not thread-safe.
class ConfigReload {
 public:
  struct Options {
    v1::AggregatorConfig in_force;
    std::function<absl::StatusOr<v1::AggregatorConfig>()> read;
    std::function<absl::Status(const AggregatorOptions&)> apply;
  };
  // The metrics must outlive it.
  ConfigReload(Options options, ConfigMetrics& metrics);

  void Look();

 private:
  absl::Status Apply(const v1::AggregatorConfig& config) const;
  void Keep(ReloadOutcome outcome, const absl::Status& reason) const;

  Options options_;
  ConfigMetrics& metrics_;
};

}  // namespace sluice
