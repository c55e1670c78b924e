#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/registry.h"

namespace sluice {

// Events of the block cache of a mid-level aggregator; label values are in mid_level_metrics.cc, in this order.
enum class CacheLookup { kHit, kJoined, kMiss };
enum class ReadAhead { kUsed, kWasted };

// The metrics of a mid-level aggregator that neither an aggregator nor a worker has. There is one for each process.
// Thread-safe.
class MidLevelMetrics {
 public:
  explicit MidLevelMetrics(prometheus::Registry& registry);

  void CountLookup(CacheLookup lookup) { lookups_[static_cast<size_t>(lookup)]->Increment(); }
  void CountReadAhead(ReadAhead outcome) { read_ahead_[static_cast<size_t>(outcome)]->Increment(); }
  void SetCacheBytes(int64_t bytes) { cache_bytes_.Set(static_cast<double>(bytes)); }

 private:
  const std::array<prometheus::Counter*, 3> lookups_;
  const std::array<prometheus::Counter*, 2> read_ahead_;
  prometheus::Gauge& cache_bytes_;
};

}  // namespace sluice
