#include "lib/link/tunnel_metrics.h"

#include "prometheus/family.h"

namespace sluice {
namespace {

constexpr std::array<const char*, 4> kPhases = {"quiet", "waiting", "turn", "held"};
constexpr std::array<const char*, 4> kTurnEnds = {"silence", "unanswered", "part", "client"};

// One series of `family` for each value of `label`, in their order.
template <class Metric>
std::array<Metric*, 4> MakeSeries(prometheus::Family<Metric>& family, const std::string& workers, const char* label,
                                  const std::array<const char*, 4>& values) {
  std::array<Metric*, 4> series;
  for (size_t i = 0; i < values.size(); ++i) series[i] = &family.Add({{"workers", workers}, {label, values[i]}});
  return series;
}

}  // namespace

TunnelMetrics::TunnelMetrics(prometheus::Registry& registry, const std::string& workers)
    : tunnels_(MakeSeries(prometheus::BuildGauge()
                              .Name("sluice_tunnels")
                              .Help("Open byte tunnels that take turns in the schedule, by what they do now.")
                              .Register(registry),
                          workers, "phase", kPhases)),
      window_bytes_(prometheus::BuildGauge()
                        .Name("sluice_tunnel_window_bytes")
                        .Help("Receive windows of the byte tunnels that have a turn now.")
                        .Register(registry)
                        .Add({{"workers", workers}})),
      received_bytes_(prometheus::BuildCounter()
                          .Name("sluice_tunnel_received_bytes_total")
                          .Help("Bytes that came from workers through scheduled byte tunnels.")
                          .Register(registry)
                          .Add({{"workers", workers}})),
      turns_(MakeSeries(prometheus::BuildCounter()
                            .Name("sluice_tunnel_turns_total")
                            .Help("Turns of byte tunnels that have ended, by the reason.")
                            .Register(registry),
                        workers, "end", kTurnEnds)),
      surprises_(prometheus::BuildCounter()
                     .Name("sluice_tunnel_surprises_total")
                     .Help("How often bytes came in a byte tunnel that no turn had room for.")
                     .Register(registry)
                     .Add({{"workers", workers}})) {}

void TunnelMetrics::Change(const Share& from, const Share& to) {
  if (from == to) return;
  if (from.phase.has_value()) tunnels_[static_cast<size_t>(*from.phase)]->Decrement();
  if (to.phase.has_value()) tunnels_[static_cast<size_t>(*to.phase)]->Increment();
  window_bytes_.Increment(static_cast<double>(to.window_bytes - from.window_bytes));
}

}  // namespace sluice
