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
                                     "Bytes of requests that workers have not taken, or may need again.")) {}

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
