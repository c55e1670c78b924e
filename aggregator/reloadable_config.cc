#include "aggregator/reloadable_config.h"

#include "lib/cli/config_reload.h"
#include "lib/cli/logging.h"

namespace sluice {
namespace {

// What a process cannot change while it runs.
v1::AggregatorConfig WithoutReloadable(v1::AggregatorConfig config) {
  config.clear_workers();
  config.clear_link();
  config.clear_sru_timeout();
  config.clear_block_timeout();
  config.clear_attempts();
  config.clear_segment_bytes();
  config.clear_log_level();
  config.clear_connect_timeout();
  // A schedule that is not given is one without a policy.
  config.mutable_schedule()->clear_budget();
  config.mutable_schedule()->clear_budget_floor();
  config.mutable_schedule()->clear_budget_limit();
  config.mutable_schedule()->clear_queue_limit();
  return config;
}

}  // namespace

absl::Status CheckReloadable(const v1::AggregatorConfig& before, const v1::AggregatorConfig& after) {
  return CheckSameButReloadable(WithoutReloadable(before), WithoutReloadable(after));
}

// The log level last: it has no effect on a config that is refused.
absl::Status ApplyConfig(const v1::AggregatorConfig& config,
                         const std::function<absl::Status(const AggregatorOptions&)>& apply) {
  const absl::StatusOr<AggregatorOptions> options = ParseAggregatorConfig(config);
  if (!options.ok()) return options.status();
  if (absl::Status known = ParseLogLevel(config.log_level()).status(); !known.ok()) return known;
  if (absl::Status applied = apply(*options); !applied.ok()) return applied;
  return SetLogLevel(config.log_level());
}

}  // namespace sluice
