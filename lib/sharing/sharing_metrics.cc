#include "lib/sharing/sharing_metrics.h"

#include "lib/telemetry/metric_families.h"

namespace sluice {
namespace {

constexpr size_t kMaxLabels = 64;

prometheus::Family<prometheus::Counter>& Counters(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

}  // namespace

SharingMetrics::SharingMetrics(prometheus::Registry& registry)
    : received_bytes_(Counters(registry, "sluice_sharing_received_bytes_total",
                               "Bytes of responses that came over the shared link, headers included.")),
      lease_changes_(Counters(registry, "sluice_sharing_lease_changes_total", "Leases that became larger or smaller.")),
      expirations_(Counters(registry, "sluice_sharing_expirations_total",
                            "Leases that ended because their process was not heard of.")),
      refusals_(MakeCounters<3>(registry, "sluice_sharing_refusals_total", "Processes that were refused.", "reason",
                                {"uid", "protocol", "full"})) {
  MakeBuildInfo(registry);
}

std::string SharingMetrics::LabelOf(const std::string& application) {
  if (!labels_.contains(application) && labels_.size() >= kMaxLabels) return "other";
  labels_.insert(application);
  return application;
}

ApplicationCounters SharingMetrics::CountersOf(const std::string& label) {
  return {.received_bytes = &received_bytes_.Add({{"application", label}}),
          .lease_changes = &lease_changes_.Add({{"application", label}}),
          .expirations = &expirations_.Add({{"application", label}})};
}

}  // namespace sluice
