#include "tools/sluice_plan/advice.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/cli/units.h"

namespace sluice {
namespace {

constexpr double kWorthAChange = 1.05;
constexpr int64_t kSruCandidates = 1024;

bool AllFitAtOnce(const LinkProfile& profile, const Sizing& sizing) {
  return sizing.workers * BufferCostBytes(profile, sizing.sru_bytes) <= BufferBudgetBytes(profile);
}

std::string Problem(const LinkProfile& profile, const Sizing& sizing) {
  const int64_t wanted = sizing.workers * BufferCostBytes(profile, sizing.sru_bytes);
  return absl::StrFormat(
      "This read has the incast problem: %d responses at once put up to %s into a buffer of %s; without a schedule a "
      "transmission times out with probability %.2g and goodput is about %s (a qualitative model).",
      sizing.workers, FormatByteSize(wanted), FormatByteSize(BufferBudgetBytes(profile)),
      sizing.unscheduled.timeout_probability, FormatBitRate(sizing.unscheduled.goodput_bps));
}

// The largest share of a slot: what the link needs for a batch, round trips over a full buffer, or the timer.
std::string Limit(const LinkProfile& profile, const Sizing& sizing) {
  if (!sizing.applicable) return absl::StrCat("The slots are not applicable: ", sizing.reason, ".");
  const SlotPlan& slots = sizing.slots;
  const absl::Duration rounding = slots.slot - slots.sru_time;
  const double batch_bytes = static_cast<double>(slots.batch_workers * WireBytes(profile, sizing.sru_bytes));
  const absl::Duration sending = absl::Seconds(batch_bytes / profile.capacity_bytes_per_second);
  const absl::Duration waiting = slots.sru_time - std::min(sending, slots.sru_time);
  const char* cause = "what the link needs to send them";
  if (std::max(rounding, waiting) > sending) cause = "round trips over a full buffer";
  if (rounding > std::max(waiting, sending)) cause = "the timer's jitter and step";
  return absl::StrFormat("The slots are limited by %s: %s for %d responses that the link sends in %s.", cause,
                         sluice::FormatDuration(slots.slot), slots.batch_workers, sluice::FormatDuration(sending));
}

// The nearest N that is worth the change, upwards first: fewer workers are seldom a choice.
std::optional<Sizing> BetterWorkers(const LinkProfile& profile, const ReadSize& size, const Sizing& sizing) {
  const double wanted = kWorthAChange * sizing.slots.goodput_bps;
  const auto better = [&](int64_t workers) -> std::optional<Sizing> {
    const auto candidate = SizeUp(profile, size, workers);
    if (!candidate.ok() || !candidate->applicable || candidate->slots.goodput_bps < wanted) return std::nullopt;
    return *candidate;
  };
  for (int64_t workers = sizing.workers + 1; workers <= 2 * sizing.workers; ++workers) {
    if (auto found = better(workers)) return found;
  }
  for (int64_t workers = sizing.workers - 1; workers > sizing.workers / 2; --workers) {
    if (auto found = better(workers)) return found;
  }
  return std::nullopt;
}

ReadSize OfSru(int64_t sru_bytes) {
  ReadSize size;
  size.sru_bytes = sru_bytes;
  return size;
}

// The best SRU of full packets, from half of this one to twice.
std::optional<Sizing> BetterSru(const LinkProfile& profile, const Sizing& sizing) {
  const int64_t packets = sizing.slots.sru_packets;
  const int64_t step = std::max<int64_t>(1, packets / kSruCandidates);
  std::optional<Sizing> best;
  for (int64_t candidate = (packets + 1) / 2; candidate <= 2 * packets; candidate += step) {
    const auto other = SizeUp(profile, OfSru(candidate * profile.packet_payload_bytes), sizing.workers);
    if (!other.ok() || !other->applicable) continue;
    const double wanted = best ? best->slots.goodput_bps : kWorthAChange * sizing.slots.goodput_bps;
    if (other->slots.goodput_bps > wanted) best = *other;
  }
  return best;
}

std::string Better(const LinkProfile& profile, const ReadSize& size, const Sizing& sizing) {
  std::string text;
  if (const auto other = BetterWorkers(profile, size, sizing)) {
    absl::StrAppend(&text, " Next better: N = ", other->workers, " (",
                    absl::string_view(FormatBitRate(other->slots.goodput_bps)), ").");
  }
  if (size.block_bytes) return text;
  if (const auto other = BetterSru(profile, sizing)) {
    absl::StrAppend(&text, " Better SRU size: ", other->sru_bytes, " bytes (",
                    absl::string_view(FormatBitRate(other->slots.goodput_bps)), ").");
  }
  return text;
}

}  // namespace

std::string Advice(const LinkProfile& profile, const ReadSize& size, const Sizing& sizing) {
  if (AllFitAtOnce(profile, sizing)) {
    return absl::StrFormat("No incast problem: all %d responses together fit the buffer, so every policy is lossless.",
                           sizing.workers);
  }
  return absl::StrCat(Problem(profile, sizing), " ", Limit(profile, sizing), Better(profile, size, sizing),
                      " The closed loop (rolling) reaches ",
                      absl::string_view(FormatBitRate(sizing.rolling_goodput_bps)), ".");
}

}  // namespace sluice
