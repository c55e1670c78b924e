#include <algorithm>

#include "sluice/plan.h"

namespace sluice {

double PredictTunnelGoodputBps(const LinkProfile& profile, int64_t response_bytes, int64_t workers,
                               absl::Duration think_time) {
  response_bytes = std::clamp<int64_t>(response_bytes, 1, kMaxResponseBytes);
  const int64_t window_bytes = kTunnelWindowPackets * profile.frame_bytes;
  const int64_t windows = std::max<int64_t>(1, BufferBudgetBytes(profile) / window_bytes);
  const int64_t requests = std::min(std::clamp<int64_t>(workers, 1, kMaxWorkers), windows);
  const double away = absl::ToDoubleSeconds(std::max(think_time, absl::ZeroDuration()) + profile.propagation_rtt);
  const double sending = static_cast<double>(WireBytes(profile, response_bytes)) / profile.capacity_bytes_per_second;
  // One request more finds the queue that was there without it.
  double queued = 0;
  double per_second = 0;
  for (int64_t i = 1; i <= requests; ++i) {
    const double at_link = sending * (1 + queued);
    per_second = static_cast<double>(i) / (away + at_link);
    queued = per_second * at_link;
  }
  return 8.0 * static_cast<double>(response_bytes) * per_second;
}

}  // namespace sluice
