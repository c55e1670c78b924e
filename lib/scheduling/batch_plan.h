#pragma once

#include <chrono>
#include <cstdint>

#include "sluice/schedule.h"

namespace sluice {

// How `batches` paces one block: k batches, one in each slot of T~.
struct BatchPlan {
  int64_t batches = 1;
  std::chrono::nanoseconds slot{0};
};

// Plans `calls` responses of at most `response_bytes` each (eq. 14, 19 and 21). n follows from the budget, since the
// owner may reserve a part of the buffer for other traffic. T~ follows from the whole buffer, which other traffic may
// fill.
BatchPlan PlanBatches(const ScheduleOptions& options, int64_t budget_bytes, int64_t response_bytes, int64_t calls);

}  // namespace sluice
