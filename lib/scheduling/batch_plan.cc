#include "lib/scheduling/batch_plan.h"

#include <algorithm>

#include "sluice/plan.h"

#include "absl/time/time.h"

namespace sluice {

BatchPlan PlanBatches(const LinkProfile& profile, int64_t budget_bytes, int64_t response_bytes, int64_t calls) {
  const SlotPlan plan = PlanSlotsAtLeastOne(profile, std::max<int64_t>(response_bytes, 1), calls);
  const int64_t burst_bytes = plan.wnd_max_packets * profile.frame_bytes;
  const int64_t batch_workers = std::max<int64_t>(budget_bytes / burst_bytes, 1);
  return {.batches = (calls + batch_workers - 1) / batch_workers, .slot = absl::ToChronoNanoseconds(plan.slot)};
}

}  // namespace sluice
