#include "lib/scheduling/pacer.h"

#include <algorithm>
#include <cmath>

#include "absl/time/time.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {
namespace {

constexpr double kRateShare = 0.97;  // the rest is for headers of requests and frames, so that no queue grows
constexpr int64_t kMostBudgets = 10;

}  // namespace

void Pacer::Set(bool paced, const LinkProfile& profile, const Budgets& budgets) {
  const auto budget = static_cast<double>(budgets.bytes);
  const auto link = static_cast<double>(budgets.link_bytes);
  const double rate = profile.capacity_bytes_per_second * budget / link;
  const double trust = std::clamp(2 * link / static_cast<double>(budgets.start_bytes) - 1, 0.0, 1.0);
  const double pipe = trust * rate * absl::ToDoubleSeconds(profile.propagation_rtt);
  paced = paced && 3 * pipe > 2 * budget;
  pipe_bytes_ = paced ? static_cast<int64_t>(std::min(pipe, kMostBudgets * budget)) : 0;
  byte_ns_ = 1e9 / (kRateShare * rate);
  if (paced) tolerance_ = TimeOf(budgets.bytes / 2);
}

void Pacer::Take(int64_t cost_bytes) {
  if (paced()) due_ = SaturatingAdd(std::max(due_, SaturatingSubtract(now_, tolerance_)), TimeOf(cost_bytes));
}

std::chrono::nanoseconds Pacer::TimeOf(int64_t bytes) const {
  constexpr double kMaxNs = 1e18;
  return std::chrono::nanoseconds(std::llround(std::min(static_cast<double>(bytes) * byte_ns_, kMaxNs)));
}

}  // namespace sluice
