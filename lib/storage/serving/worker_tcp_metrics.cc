#include "lib/storage/serving/worker_tcp_metrics.h"

#include <algorithm>
#include <utility>

#include "lib/tcp/tcp_ext.h"
#include "lib/telemetry/metric_families.h"

namespace sluice {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

// The smallest, mean and largest value over all connections.
struct Spread {
  double min = 0;
  double mean = 0;
  double max = 0;
};

template <class Value>
Spread SpreadOf(const absl::flat_hash_map<uint64_t, TcpInfo>& connections, Value value) {
  Spread spread;
  bool first = true;
  for (const auto& [inode, info] : connections) {
    const auto number = static_cast<double>(value(info));
    spread.min = first ? number : std::min(spread.min, number);
    spread.max = first ? number : std::max(spread.max, number);
    spread.mean += number / static_cast<double>(connections.size());
    first = false;
  }
  return spread;
}

void AddNamespaceFamilies(const TcpExt& ext, std::vector<MetricFamily>& families) {
  // The two counters are read one after the other while the kernel counts, so the second may be larger.
  const uint64_t without_feedback = ext.rtos - std::min(ext.rtos, ext.rtos_after_feedback);
  families.push_back(MakeFamily(MetricType::Counter, "sluice_worker_tcp_losses_total",
                                "Losses, by what the receiver told of them: nothing (the whole window was lost and a "
                                "retransmission timeout passed), something, or nothing until a tail-loss probe. Counts "
                                "the whole network namespace.",
                                "feedback",
                                {{"none", without_feedback},
                                 {"some", ext.fast_recoveries + ext.rtos_after_feedback},
                                 {"probe", ext.tail_loss_recoveries}}));
  families.push_back(MakeFamily(MetricType::Counter, "sluice_worker_tcp_lost_retransmits_total",
                                "Retransmitted packets that were lost again, in the whole network namespace.",
                                ext.lost_retransmits));
  families.push_back(MakeFamily(MetricType::Counter, "sluice_worker_tcp_spurious_rtos_total",
                                "Retransmission timeouts although nothing was lost, in the whole network namespace.",
                                ext.spurious_rtos));
  families.push_back(MakeFamily(MetricType::Counter, "sluice_worker_tcp_loss_probes_total",
                                "Tail-loss probes that were sent, in the whole network namespace.",
                                ext.tail_loss_probes));
}

}  // namespace

WorkerTcpMetrics::WorkerTcpMetrics() {
  if (absl::StatusOr<SocketDiag> diag = SocketDiag::Open(); diag.ok()) diag_ = *std::move(diag);
}

void WorkerTcpMetrics::Update(absl::Span<const TcpSocket> sockets) {
  absl::MutexLock lock(&mutex_);
  Add(sockets, state_);
}

void WorkerTcpMetrics::Add(absl::Span<const TcpSocket> sockets, State& state) {
  absl::flat_hash_map<uint64_t, TcpInfo> now;
  for (const TcpSocket& socket : sockets) {
    const auto found = state.last.find(socket.inode);
    const TcpInfo before = found == state.last.end() ? TcpInfo{} : found->second;
    state.totals.retransmitted_packets += socket.info.retransmitted_packets - before.retransmitted_packets;
    if (socket.info.rtos.has_value()) {
      state.has_rtos = true;
      state.totals.rtos += static_cast<uint16_t>(*socket.info.rtos - before.rtos.value_or(0));
    }
    now[socket.inode] = socket.info;
  }
  state.last = std::move(now);
}

std::vector<MetricFamily> WorkerTcpMetrics::Collect() const {
  absl::MutexLock lock(&mutex_);
  std::vector<MetricFamily> families;
  if (diag_.has_value()) {
    if (const auto sockets = diag_->OwnConnections(); sockets.ok()) Add(*sockets, state_);
    const auto rtt =
        SpreadOf(state_.last, [](const TcpInfo& info) { return absl::ToDoubleSeconds(info.smoothed_rtt); });
    const auto least_rtt = SpreadOf(state_.last, [](const TcpInfo& info) {
      return absl::ToDoubleSeconds(info.min_rtt.value_or(info.smoothed_rtt));
    });
    const auto window = SpreadOf(state_.last, [](const TcpInfo& info) { return info.congestion_window_packets; });
    families.push_back(MakeFamily(MetricType::Gauge, "sluice_worker_tcp_connections",
                                  "TCP connections of this process.", static_cast<double>(state_.last.size())));
    families.push_back(MakeFamily(MetricType::Counter, "sluice_worker_tcp_retransmitted_packets_total",
                                  "Packets that were sent again, of the connections of this process.",
                                  static_cast<double>(state_.totals.retransmitted_packets)));
    // Without a connection, the kernel's support of this counter is unknown.
    if (state_.has_rtos || state_.last.empty()) {
      families.push_back(MakeFamily(MetricType::Counter, "sluice_worker_tcp_rtos_total",
                                    "Retransmission timeouts, of the connections of this process.",
                                    static_cast<double>(state_.totals.rtos)));
    }
    families.push_back(MakeFamily(MetricType::Gauge, "sluice_worker_tcp_rtt_seconds",
                                  "Round trips of the connections of this process: the smallest ever of any that is "
                                  "open, and the mean of the smoothed.",
                                  "stat", {{"min", least_rtt.min}, {"smoothed", rtt.mean}}));
    families.push_back(MakeFamily(MetricType::Gauge, "sluice_worker_tcp_congestion_window_packets",
                                  "Congestion windows of the connections of this process.", "stat",
                                  {{"min", window.min}, {"mean", window.mean}, {"max", window.max}}));
  }
  if (const absl::StatusOr<TcpExt> ext = ReadTcpExt(); ext.ok()) AddNamespaceFamilies(*ext, families);
  return families;
}

}  // namespace sluice
