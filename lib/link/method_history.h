#pragma once

#include <cstdint>
#include <optional>

#include "sluice/link_profile.h"

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "lib/link/recent_quantile.h"

namespace sluice {

// What earlier answers of one method say about the next one. There is one for each method of a FanOut. Not thread-safe.
class MethodHistory {
 public:
  MethodHistory();

  // A size in bytes that most answers do not exceed. Empty before the first few; FirstResponseBytes may stand for it.
  std::optional<int64_t> ResponseBytes() const;
  // The assumed size of a response while ResponseBytes is empty: a third of the buffer, in bytes or in full packets.
  static int64_t FirstResponseBytes(const LinkProfile& profile);
  void ObserveResponse(int64_t bytes);

  // A quantile of the times that workers took until their answer was ready. The first call for a quantile begins to
  // keep times for it.
  std::optional<absl::Duration> Latency(double quantile);
  void ObserveLatency(absl::Duration latency);

 private:
  RecentQuantile response_bytes_;
  absl::flat_hash_map<double, RecentQuantile> latencies_;
};

}  // namespace sluice
