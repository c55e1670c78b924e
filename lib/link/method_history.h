#pragma once

#include <cstdint>
#include <optional>

#include "sluice/link_profile.h"

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "lib/link/recent_quantile.h"

namespace sluice {

// Predicts the size and the latency of the next response of one method from earlier responses. There is one for each
// method of a FanOut. Not thread-safe.
class MethodHistory {
 public:
  MethodHistory();

  // A size in bytes that most responses do not exceed. Empty before the first few; use FirstResponseBytes then.
  std::optional<int64_t> ResponseBytes() const;
  // The assumed size of a response while ResponseBytes is empty: a third of the buffer, in bytes or in full packets.
  static int64_t FirstResponseBytes(const LinkProfile& profile);
  void ObserveResponse(int64_t bytes);

  // A quantile of the times until workers had their response ready. The first call for a quantile starts to collect
  // times for it.
  std::optional<absl::Duration> Latency(double quantile);
  void ObserveLatency(absl::Duration latency);

 private:
  RecentQuantile response_bytes_;
  absl::flat_hash_map<double, RecentQuantile> latencies_;
};

}  // namespace sluice
