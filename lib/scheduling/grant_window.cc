#include "lib/scheduling/grant_window.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

constexpr double kMeanWeight = 1.0 / 64;
constexpr int64_t kReserveShare = 3;
// Ready answers in stock, so that the link does not wait for one when the times of workers vary.
constexpr double kStock = 4;

}  // namespace

int64_t GrantWindow::Requests(int64_t budget_bytes) const {
  const int64_t most = std::max<int64_t>(budget_bytes / kReserveShare / kReadyHeaderBytes, 1);
  if (!known_) return most;
  const double thinking = std::ceil(ready_latency_seconds_ * capacity_bytes_per_second_ / cost_bytes_);
  return static_cast<int64_t>(std::min(thinking + kStock, static_cast<double>(most)));
}

void GrantWindow::Observe(std::chrono::nanoseconds ready_latency, int64_t cost_bytes) {
  const double seconds = std::chrono::duration<double>(ready_latency).count();
  const double weight = known_ ? kMeanWeight : 1;
  known_ = true;
  ready_latency_seconds_ += weight * (seconds - ready_latency_seconds_);
  cost_bytes_ += weight * (static_cast<double>(std::max<int64_t>(cost_bytes, 1)) - cost_bytes_);
}

}  // namespace sluice
