#include "lib/proxy/proxy_metrics.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "lib/telemetry/metric_families.h"

namespace sluice {
namespace {

constexpr std::array<const char*, 8> kConnectionNames = {
    "http2",        "connect", "worker_tunnel",    "scheduled_tunnel",
    "other_tunnel", "refused", "handshake_failed", "unreachable"};
constexpr std::array<const char*, 3> kTunnelNames = {"worker", "scheduled", "other"};
constexpr char kOtherMethods[] = "other";
constexpr char kNoWorkers[] = "none";
constexpr size_t kMaxMethodBytes = 256;
constexpr size_t kMaxRefusedGroups = 256;
constexpr char kOtherNames[] = "others";

// A label must be UTF-8, or the scrape fails; the path of a call may contain any bytes.
bool IsMethodName(const std::string& method) {
  return method.size() <= kMaxMethodBytes &&
         std::all_of(method.begin(), method.end(), [](char c) { return absl::ascii_isgraph(c); });
}

prometheus::Gauge& MakeGauge(prometheus::Registry& registry, const std::string& name, const std::string& help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

std::array<prometheus::Gauge*, 3> MakeTunnelGauges(prometheus::Registry& registry) {
  auto& family = prometheus::BuildGauge()
                     .Name("sluice_proxy_tunnels")
                     .Help("Open tunnels that are forwarded, by where they lead; those to scheduled take turns.")
                     .Register(registry);
  return {&family.Add({{"to", kTunnelNames[0]}}), &family.Add({{"to", kTunnelNames[1]}}),
          &family.Add({{"to", kTunnelNames[2]}})};
}

}  // namespace

ProxyMetrics::ProxyMetrics(prometheus::Registry& registry)
    : connections_total_(MakeCounters(registry, "sluice_proxy_connections_total",
                                      "Connections of clients, by what they turned out to be.", "kind",
                                      kConnectionNames)),
      tunnels_(MakeTunnelGauges(registry)),
      tunnel_bytes_(MakeCounters(registry, "sluice_proxy_tunnel_received_bytes_total",
                                 "Bytes that came through forwarded tunnels.", "to", kTunnelNames)),
      calls_total_(prometheus::BuildCounter()
                       .Name("sluice_proxy_calls_total")
                       .Help("Calls that have ended, by the pattern of workers that let them in and the status of gRPC "
                             "that the client got.")
                       .Register(registry)),
      call_seconds_(prometheus::BuildHistogram()
                        .Name("sluice_proxy_call_seconds")
                        .Help("Time from the first header of a call until it has ended.")
                        .Register(registry)),
      stuck_calls_(&MakeCounter(registry, "sluice_proxy_stuck_calls_total",
                                "Calls that were ended because their client read nothing of the response, and passed "
                                "tunnels of which one end read nothing.")),
      idle_ends_(&MakeCounter(registry, "sluice_proxy_idle_ends_total",
                              "Connections without calls that were ended so that new ones have room.")),
      connections_(&MakeGauge(registry, "sluice_proxy_connections", "Open connections of clients.")),
      calls_(&MakeGauge(registry, "sluice_proxy_calls", "Calls that have not ended.")),
      held_bytes_(
          &MakeGauge(registry, "sluice_proxy_held_bytes", "Bytes of responses that clients have not read yet.")),
      held_request_bytes_(&MakeGauge(registry, "sluice_proxy_held_request_bytes",
                                     "Bytes of requests that workers have not taken, or may need again.")),
      group_used_(prometheus::BuildGauge()
                      .Name("sluice_proxy_group_used")
                      .Help("What a group of clients uses of a limit of the proxy.")
                      .Register(registry)),
      group_share_(prometheus::BuildGauge()
                       .Name("sluice_proxy_group_share")
                       .Help("What a group of clients may use of a limit while other groups need all the rest.")
                       .Register(registry)),
      group_refusals_(
          prometheus::BuildCounter()
              .Name("sluice_proxy_group_refusals_total")
              .Help("Refusals of clients of a group at a limit: at its own cap, at its share of a limit that "
                    "is reached, or since it gave way to another group.")
              .Register(registry)) {}

// A client may be a group of its own, so the number of names has no bound.
void ProxyMetrics::CountGroupRefusal(const std::string& group, absl::string_view limit, absl::string_view reason) {
  const bool known = refused_groups_.contains(group) || refused_groups_.size() < kMaxRefusedGroups;
  if (known) refused_groups_.insert(group);
  group_refusals_
      .Add({{"group", known ? group : kOtherNames}, {"limit", std::string(limit)}, {"reason", std::string(reason)}})
      .Increment();
}

void ProxyMetrics::SetGroupUse(const std::string& group, absl::string_view limit, int64_t used, int64_t share) {
  const std::string name(limit);
  const auto [place, is_new] = use_by_group_[group].try_emplace(name);
  GroupUse& use = place->second;
  if (is_new)
    use = {&group_used_.Add({{"group", group}, {"limit", name}}),
           &group_share_.Add({{"group", group}, {"limit", name}})};
  use.used->Set(static_cast<double>(used));
  use.share->Set(static_cast<double>(share));
}

void ProxyMetrics::DropGroup(const std::string& group) {
  const auto found = use_by_group_.find(group);
  if (found == use_by_group_.end()) return;
  for (const auto& [limit, use] : found->second) {
    group_used_.Remove(use.used);
    group_share_.Remove(use.share);
  }
  use_by_group_.erase(found);
}

void ProxyMetrics::CountCall(const std::string& workers, absl::StatusCode code) {
  prometheus::Counter*& counter = calls_by_label_[{workers, code}];
  if (counter == nullptr) {
    counter = &calls_total_.Add(
        {{"workers", workers.empty() ? kNoWorkers : workers}, {"code", absl::StatusCodeToString(code)}});
  }
  counter->Increment();
}

void ProxyMetrics::ObserveCall(const std::string& method, bool exists, absl::Duration took) {
  auto found = seconds_by_method_.find(method);
  if (found == seconds_by_method_.end()) {
    const size_t methods = seconds_by_method_.size() - seconds_by_method_.count(kOtherMethods);
    const bool gets_series = exists && methods < kMaxMethods && IsMethodName(method);
    const std::string label = gets_series ? method : kOtherMethods;
    found = seconds_by_method_.find(label);
    if (found == seconds_by_method_.end()) {
      prometheus::Histogram& histogram = call_seconds_.Add({{"method", label}}, TransferTimeBuckets());
      found = seconds_by_method_.emplace(label, &histogram).first;
    }
  }
  found->second->Observe(absl::ToDoubleSeconds(took));
}

}  // namespace sluice
