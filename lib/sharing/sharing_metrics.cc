#include "lib/sharing/sharing_metrics.h"

#include <utility>

#include "lib/telemetry/metric_families.h"

namespace sluice {
namespace {

constexpr size_t kMaxLabels = 64;

prometheus::Family<prometheus::Counter>& Counters(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

std::string LabelIn(std::set<std::string>& labels, const std::string& name) {
  if (!labels.contains(name) && labels.size() >= kMaxLabels) return "other";
  labels.insert(name);
  return name;
}

}  // namespace

SharingMetrics::SharingMetrics(prometheus::Registry& registry)
    : received_bytes_(Counters(registry, "sluice_sharing_received_bytes_total",
                               "Bytes of responses that came over the shared link, headers included.")),
      lease_changes_(Counters(registry, "sluice_sharing_lease_changes_total", "Leases that became larger or smaller.")),
      expirations_(Counters(registry, "sluice_sharing_expirations_total",
                            "Leases that ended because their process was not heard of.")),
      class_received_bytes_(Counters(registry, "sluice_sharing_class_received_bytes_total",
                                     "Bytes of responses of a class of traffic, of all processes that name it.")),
      refusals_(MakeCounters<3>(registry, "sluice_sharing_refusals_total", "Processes that were refused.", "reason",
                                {"uid", "protocol", "full"})),
      invariant_breaches_(MakeBreachCounter(registry)) {
  MakeBuildInfo(registry);
}

std::string SharingMetrics::LabelOf(const std::string& application) {
  return LabelIn(labels_, application);
}

std::string SharingMetrics::LabelOfClass(const std::string& name) {
  return LabelIn(class_labels_, name);
}

ApplicationCounters SharingMetrics::CountersOf(const std::string& label, const std::vector<std::string>& class_labels) {
  std::vector<prometheus::Counter*> classes;
  for (const std::string& each : class_labels) classes.push_back(&class_received_bytes_.Add({{"class", each}}));
  return {.received_bytes = &received_bytes_.Add({{"application", label}}),
          .lease_changes = &lease_changes_.Add({{"application", label}}),
          .expirations = &expirations_.Add({{"application", label}}),
          .class_received_bytes = std::move(classes)};
}

}  // namespace sluice
