#include <algorithm>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/model/slow_start.h"

namespace sluice {
namespace {

// One more round than eq. 18 has. The numbers in the paper's text require it, and so does a worker. The request (over a
// fresh connection: the handshake) takes a round trip before the first packet of the response.
constexpr int64_t kRequestRounds = 1;

absl::Status CheckSize(absl::string_view name, int64_t value, int64_t high) {
  if (value >= 1 && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", it must be from 1 to ", high));
}

absl::Duration SruTime(const LinkProfile& profile, int64_t sru_packets) {
  const double capacity = profile.capacity_bytes_per_second;
  const double bytes = static_cast<double>((profile.frame_bytes + profile.ack_frame_bytes) * sru_packets);
  const double full_buffer = static_cast<double>(BufferBudgetBytes(profile)) / capacity;
  const double rounds = static_cast<double>(SendingRounds(profile, sru_packets) + kRequestRounds);
  // Convert once at the end. A Duration rounds to a quarter of a nanosecond. So a sum that is a whole number of timer
  // steps is not rounded up to the next step.
  return absl::Seconds(bytes / capacity + rounds * (absl::ToDoubleSeconds(profile.propagation_rtt) + full_buffer));
}

int64_t BatchWorkers(const LinkProfile& profile, int64_t wnd_max_packets) {
  return BufferBudgetBytes(profile) / (wnd_max_packets * profile.frame_bytes);
}

absl::Status NotApplicable(const LinkProfile& profile, int64_t wnd_max_packets) {
  const int64_t wanted = wnd_max_packets * profile.frame_bytes;
  const int64_t there = BufferBudgetBytes(profile);
  return absl::FailedPreconditionError(absl::StrCat("no worker may respond (n = 0): one puts up to ", wnd_max_packets,
                                                    " packets or ", wanted, " bytes into a buffer of ", there,
                                                    " bytes, ", wanted - there, " too many; take a smaller SRU"));
}

}  // namespace

absl::StatusOr<SlotPlan> PlanSlots(const LinkProfile& profile, int64_t sru_bytes, int64_t workers) {
  absl::Status status = CheckSize("sru_bytes", sru_bytes, kMaxResponseBytes);
  status.Update(CheckSize("workers", workers, kMaxWorkers));
  if (!status.ok()) return status;
  const int64_t wnd_max_packets = WndMaxPackets(profile, Packets(profile, sru_bytes));
  if (BatchWorkers(profile, wnd_max_packets) == 0) return NotApplicable(profile, wnd_max_packets);
  return PlanSlotsAtLeastOne(profile, sru_bytes, workers);
}

SlotPlan PlanSlotsAtLeastOne(const LinkProfile& profile, int64_t sru_bytes, int64_t workers) {
  sru_bytes = std::clamp<int64_t>(sru_bytes, 1, kMaxResponseBytes);
  workers = std::clamp<int64_t>(workers, 1, kMaxWorkers);
  SlotPlan plan;
  plan.sru_packets = Packets(profile, sru_bytes);
  plan.wnd_max_packets = WndMaxPackets(profile, plan.sru_packets);
  plan.batch_workers = std::max<int64_t>(1, BatchWorkers(profile, plan.wnd_max_packets));
  plan.batches = (workers - 1) / plan.batch_workers + 1;
  plan.sru_time = SruTime(profile, plan.sru_packets);
  plan.slot = absl::Ceil(plan.sru_time + profile.timer_jitter, profile.timer_granularity);
  plan.block_time = plan.slot * (plan.batches - 1) + plan.sru_time + profile.timer_jitter;
  plan.goodput_bps = 8.0 * static_cast<double>(sru_bytes * workers) / absl::ToDoubleSeconds(plan.block_time);
  return plan;
}

}  // namespace sluice
