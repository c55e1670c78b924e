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

}  // namespace

CollapseEstimate PredictCollapse(const LinkProfile& profile, int64_t sru_bytes, int64_t workers,
                                 const CollapseOptions& options) {
  sru_bytes = std::clamp<int64_t>(sru_bytes, 1, kMaxResponseBytes);
  workers = std::clamp<int64_t>(workers, 1, kMaxWorkers);
  const double sru_packets = static_cast<double>(Packets(profile, sru_bytes));
  const double wanted_window =
      options.window_packets > 0 ? options.window_packets : static_cast<double>(profile.initial_window_packets);
  const double window = std::clamp(wanted_window, 1.0, sru_packets);
  const double rounds = std::ceil(sru_packets / window);
  const double count = static_cast<double>(workers);

  CollapseEstimate estimate;
  estimate.loss_probability = LossProbability(profile, count * window);
  estimate.timeout_probability =
      TimeoutProbability(estimate.loss_probability, window, std::max(0.0, options.window_variance), rounds);
  const double sending = count * static_cast<double>(WireBytes(profile, sru_bytes)) / profile.capacity_bytes_per_second;
  const double stalled = estimate.timeout_probability * std::max(0.0, absl::ToDoubleSeconds(options.rto_min));
  estimate.goodput_bps = 8.0 * count * static_cast<double>(sru_bytes) / (sending + stalled);
  return estimate;
}

}  // namespace sluice
