#pragma once

#include <cstdint>
#include <functional>

#include "sluice/v1/config.pb.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregator/aggregator_config.h"
#include "lib/telemetry/config_metrics.h"

namespace sluice {

// FailedPrecondition that names the fields, with what they were and are, where `after` cannot take the place of
// `before` in a process that runs.
absl::Status CheckReloadable(const v1::AggregatorConfig& before, const v1::AggregatorConfig& after);

// Of the config as it is in force: the same for two aggregators with the same config, of the same version.
uint32_t ConfigHash(const v1::AggregatorConfig& config);

// Takes over what has changed in the config, all of it or nothing, and tells the log and the metrics. One a process;
// not thread-safe.
class ConfigReload {
 public:
  struct Options {
    v1::AggregatorConfig in_force;
    std::function<absl::StatusOr<v1::AggregatorConfig>()> read;
    std::function<absl::Status(const AggregatorOptions&)> apply;
  };
  // The metrics outlive it.
  ConfigReload(Options options, ConfigMetrics& metrics);

  void Look();

 private:
  absl::Status Apply(const v1::AggregatorConfig& config) const;
  void Keep(ReloadOutcome outcome, const absl::Status& reason) const;

  Options options_;
  ConfigMetrics& metrics_;
};

}  // namespace sluice
