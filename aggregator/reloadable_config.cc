#include "aggregator/reloadable_config.h"

#include "lib/cli/config_reload.h"

namespace sluice {
namespace {

// Returns the part of the config that cannot change at runtime.
v1::AggregatorConfig WithoutReloadable(v1::AggregatorConfig config) {
  config.clear_workers();
  config.clear_link();
  config.clear_sru_timeout();
  config.clear_block_timeout();
  config.clear_attempts();
  config.clear_segment_bytes();
  config.clear_log_level();
  config.clear_connect_timeout();
  // A missing schedule is a schedule without a policy.
  ClearReloadable(*config.mutable_schedule());
  return config;
}

}  // namespace

absl::Status CheckReloadable(const v1::AggregatorConfig& before, const v1::AggregatorConfig& after) {
  return CheckSameButReloadable(WithoutReloadable(before), WithoutReloadable(after));
}

}  // namespace sluice
