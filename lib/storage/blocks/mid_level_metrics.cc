#include "lib/storage/blocks/mid_level_metrics.h"

#include "lib/telemetry/metric_families.h"

namespace sluice {

MidLevelMetrics::MidLevelMetrics(prometheus::Registry& registry)
    : lookups_(MakeCounters<3>(registry, "sluice_mid_level_cache_lookups_total",
                               "Data blocks that the level above wanted a part of, by whether they were in the cache.",
                               "outcome", {"hit", "joined", "miss"})),
      read_ahead_(MakeCounters<2>(registry, "sluice_mid_level_read_ahead_blocks_total",
                                  "Data blocks that were read ahead, by whether they were wanted then.", "outcome",
                                  {"used", "wasted"})),
      cache_bytes_(prometheus::BuildGauge()
                       .Name("sluice_mid_level_cache_bytes")
                       .Help("Data blocks in the cache, those on their way included.")
                       .Register(registry)
                       .Add({})) {}

}  // namespace sluice
