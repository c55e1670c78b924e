#include "lib/telemetry/config_metrics.h"

#include <string>

#include "lib/telemetry/metric_families.h"

namespace sluice {
namespace {

prometheus::Gauge& MakeGauge(prometheus::Registry& registry, const std::string& name, const std::string& help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

}  // namespace

ConfigMetrics::ConfigMetrics(prometheus::Registry& registry)
    : reloads_(MakeCounters<3>(registry, "sluice_config_reloads_total",
                               "Changes of the config file, by what became of them.", "outcome",
                               {"applied", "invalid", "refused"})),
      last_success_(MakeGauge(registry, "sluice_config_last_reload_success_timestamp_seconds",
                              "When the config in force was read.")),
      hash_(MakeGauge(registry, "sluice_config_hash", "CRC-32 of the config in force, flags included.")) {}

void ConfigMetrics::SetInForce(uint32_t hash, absl::Time since) {
  hash_.Set(hash);
  last_success_.Set(static_cast<double>(absl::ToUnixMillis(since)) / 1000);
}

}  // namespace sluice
