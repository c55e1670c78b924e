#pragma once

#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "lib/fan_out/recent_quantile.h"

namespace sluice {

// What earlier answers of one method teach about the next one. One for each method of a FanOut. Not thread-safe.
class MethodHistory {
 public:
  MethodHistory();

  // Bytes that most answers do not exceed. Nothing before the first few.
  std::optional<int64_t> ResponseBytes() const;
  void ObserveResponse(int64_t bytes);

  // A quantile of the times that workers took until their answer was ready (where nothing waits for grants: was here).
  // Times are kept from the first question on, for each quantile that was asked for.
  std::optional<absl::Duration> Latency(double quantile);
  void ObserveLatency(absl::Duration latency);

 private:
  RecentQuantile response_bytes_;
  absl::flat_hash_map<double, RecentQuantile> latencies_;
};

}  // namespace sluice
