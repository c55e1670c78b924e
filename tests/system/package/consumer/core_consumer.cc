// Uses only the pure libraries in a project of its own: two of three responses fit into the buffer.
#include <iostream>

#include "sluice/plan.h"
#include "sluice/schedule.h"

int main() {
  const sluice::ScheduleOptions options{.profile = {.buffer_bytes = 25000},
                                        .policy = *sluice::ParseSchedulePolicy("batches")};
  if (const absl::Status valid = options.Validate(); !valid.ok()) {
    std::cerr << valid << "\n";
    return 1;
  }
  const auto plan = sluice::PlanSlots(options.profile, 10000, 3);
  if (!plan.ok() || plan->batch_workers != 2) {
    std::cerr << plan.status() << ": a batch must have 2 workers\n";
    return 1;
  }
  return 0;
}
