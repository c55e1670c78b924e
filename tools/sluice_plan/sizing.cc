#include "tools/sluice_plan/sizing.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// One bound for all N of a table: its first row reads the whole block from one worker.
absl::Status CheckBlock(int64_t block_bytes, int64_t workers) {
  if (block_bytes >= workers && block_bytes <= kMaxResponseBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("block is ", block_bytes, " bytes, it must be from ", workers,
                                                 " (one a worker) to ", kMaxResponseBytes));
}

}  // namespace

absl::StatusOr<Sizing> SizeUp(const LinkProfile& profile, const ReadSize& size, int64_t workers) {
  Sizing sizing;
  sizing.workers = workers;
  sizing.sru_bytes = size.sru_bytes;
  double payload_share = 1;  // of `workers` full SRUs: the last one of a block may be shorter
  if (size.block_bytes) {
    const int64_t shares = std::clamp<int64_t>(workers, 1, kMaxWorkers);  // what is outside PlanSlots refuses by name
    if (absl::Status status = CheckBlock(*size.block_bytes, shares); !status.ok()) return status;
    sizing.sru_bytes = (*size.block_bytes + shares - 1) / shares;
    payload_share = static_cast<double>(*size.block_bytes) / static_cast<double>(sizing.sru_bytes * shares);
  }
  const auto plan = PlanSlots(profile, sizing.sru_bytes, workers);
  if (plan.ok()) {
    sizing.slots = *plan;
    sizing.slots.goodput_bps *= payload_share;
  } else if (absl::IsFailedPrecondition(plan.status())) {
    sizing.applicable = false;
    sizing.reason = std::string(plan.status().message());
    sizing.slots = PlanSlotsAtLeastOne(profile, sizing.sru_bytes, workers);
    sizing.slots.batch_workers = sizing.slots.batches = 0;
    sizing.slots.block_time = absl::ZeroDuration();
    sizing.slots.goodput_bps = 0;
  } else {
    return plan.status();
  }
  sizing.rolling_goodput_bps = payload_share * PredictClosedLoopGoodputBps(profile, sizing.sru_bytes, workers);
  sizing.unscheduled = PredictCollapse(profile, sizing.sru_bytes, workers);
  sizing.unscheduled.goodput_bps *= payload_share;
  return sizing;
}

}  // namespace sluice
