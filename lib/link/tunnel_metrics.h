#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "lib/scheduling/tunnel_turns.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/registry.h"

namespace sluice {

// Label values, in the order of the enumerators; see tunnel_metrics.cc and docs/reference/metrics.md.
enum class TunnelTurnEnd { kSilence, kUnanswered, kPart, kClient };

// The metrics of the scheduled byte tunnels whose targets match one pattern. There is one for each pattern of a link
// (LinkMetrics::Tunnels). Used on the link's thread only; other threads may read the registry.
class TunnelMetrics {
 public:
  // The share of one tunnel in the gauges. No phase: the tunnel is not open.
  struct Share {
    std::optional<TunnelTurns::Phase> phase;
    int64_t window_bytes = 0;  // of a turn

    bool operator==(const Share&) const = default;
  };

  // `workers` is the pattern. The registry must outlive the metrics.
  TunnelMetrics(prometheus::Registry& registry, const std::string& workers);

  // The share of a tunnel changes.
  void Change(const Share& from, const Share& to);
  void AddReceived(int64_t bytes) { received_bytes_.Increment(static_cast<double>(bytes)); }
  void CountTurn(TunnelTurnEnd end) { turns_[static_cast<size_t>(end)]->Increment(); }
  // Counts a window of bytes that came without a turn.
  void CountSurprise() { surprises_.Increment(); }

 private:
  const std::array<prometheus::Gauge*, 4> tunnels_;  // by phase
  prometheus::Gauge& window_bytes_;
  prometheus::Counter& received_bytes_;
  const std::array<prometheus::Counter*, 4> turns_;
  prometheus::Counter& surprises_;
};

}  // namespace sluice
