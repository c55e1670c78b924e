#include "lib/scheduling/batch_plan.h"

#include <algorithm>

#include "sluice/plan.h"

#include "absl/time/time.h"

namespace sluice {

BatchPlan PlanBatches(const ScheduleOptions& options, int64_t budget_bytes, int64_t response_bytes, int64_t calls) {
  const LinkProfile& profile = options.profile;
  const int64_t answer_bytes = std::max<int64_t>(response_bytes, 1);
  const absl::Duration slot = PlanSlotsAtLeastOne(profile, answer_bytes, calls).slot;
  const int64_t burst_bytes = WndMaxPackets(profile, Packets(profile, answer_bytes)) * profile.frame_bytes;
  const int64_t batch_workers = std::max<int64_t>(budget_bytes / burst_bytes, 1);
  return {.batches = (calls + batch_workers - 1) / batch_workers,
          .slot = absl::ToChronoNanoseconds(absl::Ceil(slot, profile.timer_granularity))};
}

}  // namespace sluice
