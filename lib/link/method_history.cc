#include "lib/link/method_history.h"

#include "sluice/plan.h"

namespace sluice {
namespace {

// Responses above this quantile take more than their charge, so the buffer must have room for these few. A maximum
// would let one large response slow down hundreds of small ones.
constexpr double kResponseQuantile = 0.95;

}  // namespace

MethodHistory::MethodHistory() : response_bytes_(kResponseQuantile) {}

std::optional<int64_t> MethodHistory::ResponseBytes() const {
  const std::optional<double> bytes = response_bytes_.value();
  if (!bytes.has_value()) return std::nullopt;
  return static_cast<int64_t>(*bytes);
}

int64_t MethodHistory::FirstResponseBytes(const LinkProfile& profile) {
  return BufferBudgetBytes(profile) / 3;
}

void MethodHistory::ObserveResponse(int64_t bytes) {
  response_bytes_.Observe(static_cast<double>(bytes));
}

std::optional<absl::Duration> MethodHistory::Latency(double quantile) {
  const std::optional<double> seconds = latencies_.try_emplace(quantile, quantile).first->second.value();
  if (!seconds.has_value()) return std::nullopt;
  return absl::Seconds(*seconds);
}

void MethodHistory::ObserveLatency(absl::Duration latency) {
  for (auto& [quantile, latencies] : latencies_) latencies.Observe(absl::ToDoubleSeconds(latency));
}

}  // namespace sluice
