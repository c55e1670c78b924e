#include "tools/sluice_plan/sizing.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// All N of a table have the same bound, since the first row reads the whole block from one worker.
absl::Status CheckBlock(int64_t block_bytes, int64_t workers) {
  if (block_bytes >= workers && block_bytes <= kMaxResponseBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("block is ", block_bytes, " bytes, it must be from ", workers,
                                                 " (one a worker) to ", kMaxResponseBytes));
}

// How far the costs of all responses exceed the buffer. Their sum may exceed 64 bits, and saturates.
int64_t ExcessBytes(const LinkProfile& profile, int64_t sru_bytes, int64_t workers) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const int64_t cost = BufferCostBytes(profile, sru_bytes);
  const int64_t all = cost > kMost / workers ? kMost : cost * workers;
  return std::max<int64_t>(0, all - BufferBudgetBytes(profile));
}

}  // namespace

absl::StatusOr<Sizing> SizeUp(const Read& read) {
  absl::Status status = read.profile.Validate();
  status.Update(read.unscheduled.Validate());
  if (read.think_time < absl::ZeroDuration()) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("think is ", absl::FormatDuration(read.think_time), ", it must be 0 or more")));
  }
  if (!status.ok()) return status;
  Sizing sizing;
  sizing.read = read;
  sizing.sru_bytes = read.sru_bytes;
  double payload_share = 1;  // relative to `workers` full SRUs: the last SRU of a block may be shorter
  if (read.block_bytes) {
    const int64_t shares = std::clamp<int64_t>(read.workers, 1, kMaxWorkers);  // PlanSlots rejects other values
    if (status = CheckBlock(*read.block_bytes, shares); !status.ok()) return status;
    sizing.sru_bytes = (*read.block_bytes + shares - 1) / shares;
    payload_share = static_cast<double>(*read.block_bytes) / static_cast<double>(sizing.sru_bytes * shares);
  }
  const auto plan = PlanSlots(read.profile, sizing.sru_bytes, read.workers);
  if (plan.ok()) {
    sizing.slots = *plan;
    sizing.slots.goodput_bps *= payload_share;
  } else if (absl::IsFailedPrecondition(plan.status())) {
    sizing.applicable = false;
    sizing.reason = std::string(plan.status().message());
    sizing.slots = PlanSlotsAtLeastOne(read.profile, sizing.sru_bytes, read.workers);
    sizing.slots.batch_workers = sizing.slots.batches = 0;
    sizing.slots.block_time = absl::ZeroDuration();
    sizing.slots.goodput_bps = 0;
  } else {
    return plan.status();
  }
  sizing.rolling_goodput_bps =
      payload_share * PredictClosedLoopGoodputBps(read.profile, sizing.sru_bytes, read.workers);
  sizing.grants_goodput_bps = payload_share * PredictGrantsGoodputBps(read.profile, sizing.sru_bytes, read.workers);
  sizing.grants_link_share = GrantedLinkShare(read.profile, sizing.sru_bytes);
  sizing.tunnel_goodput_bps =
      payload_share * PredictTunnelGoodputBps(read.profile, sizing.sru_bytes, read.workers, read.think_time);
  sizing.excess_bytes = ExcessBytes(read.profile, sizing.sru_bytes, read.workers);
  sizing.unscheduled_goodput_bps = PredictUnscheduledGoodputBps(read.profile, sizing.sru_bytes, read.workers);
  if (sizing.unscheduled_goodput_bps) *sizing.unscheduled_goodput_bps *= payload_share;
  sizing.collapse = PredictCollapse(read.profile, sizing.sru_bytes, read.workers, read.unscheduled);
  sizing.collapse.goodput_bps *= payload_share;
  sizing.collapse.printed_goodput_bps *= payload_share;
  return sizing;
}

}  // namespace sluice
