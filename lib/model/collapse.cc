#include <algorithm>
#include <cmath>

#include "sluice/plan.h"

namespace sluice {
namespace {

double LossProbability(const LinkProfile& profile, double packets_at_once) {
  const double frame = static_cast<double>(profile.frame_bytes);
  const double buffer = static_cast<double>(BufferBudgetBytes(profile)) / frame;
  const double pipe = profile.capacity_bytes_per_second * absl::ToDoubleSeconds(profile.propagation_rtt) / frame;
  return std::max(0.0, (packets_at_once - buffer - pipe) / packets_at_once);
}

double TimeoutProbability(double loss, double window, double variance, double rounds) {
  if (loss == 0) return 0;
  const double log_loss = std::log(loss);
  const double in_a_round = std::min(1.0, std::exp(window * log_loss + 0.5 * variance * log_loss * log_loss));
  return 1 - std::pow(1 - in_a_round, rounds);
}

// Loss and timeouts (18, 17 there) when all workers answer with windows of `window` packets.
CollapseEstimate AtWindow(const LinkProfile& profile, int64_t sru_packets, int64_t workers, double window,
                          double variance) {
  CollapseEstimate estimate;
  estimate.loss_probability = LossProbability(profile, static_cast<double>(workers) * window);
  const double rounds = std::ceil(static_cast<double>(sru_packets) / window);
  estimate.timeout_probability = TimeoutProbability(estimate.loss_probability, window, variance, rounds);
  return estimate;
}

// A connection goes through several windows, and the source has one w. The initial window alone would say that a fresh
// connection with IW = 1 loses nothing at N = 16, where packet simulation shows two timeouts a block.
CollapseEstimate AtWorstWindow(const LinkProfile& profile, int64_t sru_packets, int64_t workers, double variance) {
  const int64_t largest = WndMaxPackets(profile, sru_packets);
  CollapseEstimate worst;
  for (int64_t window = std::min(profile.initial_window_packets, largest); window <= largest; window *= 2) {
    const CollapseEstimate estimate = AtWindow(profile, sru_packets, workers, static_cast<double>(window), variance);
    if (estimate.timeout_probability >= worst.timeout_probability) worst = estimate;
  }
  return worst;
}

}  // namespace

CollapseEstimate PredictCollapse(const LinkProfile& profile, int64_t sru_bytes, int64_t workers,
                                 const CollapseOptions& options) {
  sru_bytes = std::clamp<int64_t>(sru_bytes, 1, kMaxResponseBytes);
  workers = std::clamp<int64_t>(workers, 1, kMaxWorkers);
  const int64_t sru_packets = Packets(profile, sru_bytes);
  const double variance = std::max(0.0, options.window_variance);
  CollapseEstimate estimate =
      options.window_packets > 0
          ? AtWindow(profile, sru_packets, workers,
                     std::clamp(options.window_packets, 1.0, static_cast<double>(sru_packets)), variance)
          : AtWorstWindow(profile, sru_packets, workers, variance);

  const double count = static_cast<double>(workers);
  const double sending = count * static_cast<double>(WireBytes(profile, sru_bytes)) / profile.capacity_bytes_per_second;
  const double rto = std::max(0.0, absl::ToDoubleSeconds(options.rto_min));
  const double stalled = estimate.timeout_probability > 0 ? estimate.timeout_probability * rto : 0;  // not 0 * inf
  estimate.goodput_bps = 8.0 * count * static_cast<double>(sru_bytes) / (sending + stalled);
  return estimate;
}

}  // namespace sluice
