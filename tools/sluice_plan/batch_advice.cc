#include "tools/sluice_plan/batch_advice.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/cli/units.h"
#include "tools/sluice_plan/table.h"

namespace sluice {
namespace {

constexpr double kWorthAChange = 1.05;
constexpr int64_t kSruCandidates = 1024;

// The largest share of a slot: what the link needs for a batch, round trips over a full buffer, or the timer.
std::string Limit(const Sizing& sizing) {
  const LinkProfile& profile = sizing.read.profile;
  if (!sizing.applicable) return absl::StrCat("Batches are not applicable: ", sizing.reason, ".");
  const SlotPlan& slots = sizing.slots;
  const absl::Duration rounding = slots.slot - slots.sru_time;
  const double batch_bytes = static_cast<double>(slots.batch_workers * WireBytes(profile, sizing.sru_bytes));
  const absl::Duration sending = absl::Seconds(batch_bytes / profile.capacity_bytes_per_second);
  const absl::Duration waiting = slots.sru_time - std::min(sending, slots.sru_time);
  const char* cause = "what the link needs to send them";
  if (std::max(rounding, waiting) > sending) cause = "round trips over a full buffer";
  if (rounding > std::max(waiting, sending)) cause = "the timer's jitter and step";
  return absl::StrFormat("The slots of batches are limited by %s: %s for %d responses that the link sends in %s.",
                         cause, sluice::FormatDuration(slots.slot), slots.batch_workers,
                         sluice::FormatDuration(sending));
}

// The nearest N that is worth the change, upwards first: fewer workers are seldom a choice.
std::optional<Sizing> BetterWorkers(const Sizing& sizing) {
  const double wanted = kWorthAChange * sizing.slots.goodput_bps;
  const int64_t now = sizing.read.workers;
  const auto better = [&](int64_t workers) -> std::optional<Sizing> {
    Read read = sizing.read;
    read.workers = workers;
    const auto candidate = SizeUp(read);
    if (!candidate.ok() || !candidate->applicable || candidate->slots.goodput_bps < wanted) return std::nullopt;
    return *candidate;
  };
  for (int64_t workers = now + 1; workers <= 2 * now; ++workers) {
    if (auto found = better(workers)) return found;
  }
  for (int64_t workers = now - 1; workers > now / 2; --workers) {
    if (auto found = better(workers)) return found;
  }
  return std::nullopt;
}

// The best SRU of full packets, from half of this one to twice.
std::optional<Sizing> BetterSru(const Sizing& sizing) {
  const int64_t packets = sizing.slots.sru_packets;
  const int64_t step = std::max<int64_t>(1, packets / kSruCandidates);
  std::optional<Sizing> best;
  Read read = sizing.read;
  for (int64_t candidate = (packets + 1) / 2; candidate <= 2 * packets; candidate += step) {
    read.sru_bytes = candidate * read.profile.packet_payload_bytes;
    const auto other = SizeUp(read);
    if (!other.ok() || !other->applicable) continue;
    const double wanted = best ? best->slots.goodput_bps : kWorthAChange * sizing.slots.goodput_bps;
    if (other->slots.goodput_bps > wanted) best = *other;
  }
  return best;
}

std::string Better(const Sizing& sizing) {
  std::string text;
  if (const auto other = BetterWorkers(sizing)) {
    absl::StrAppend(&text, " Next better N: ", other->read.workers, " (",
                    absl::string_view(FormatBitRate(other->slots.goodput_bps)), ").");
  }
  if (sizing.read.block_bytes) return text;
  if (const auto other = BetterSru(sizing)) {
    absl::StrAppend(&text, " Better SRU size: ", other->sru_bytes, " bytes (",
                    absl::string_view(FormatBitRate(other->slots.goodput_bps)), ").");
  }
  return text;
}

}  // namespace

std::string BatchAdvice(const Sizing& sizing) {
  return absl::StrCat(Limit(sizing), Better(sizing));
}

std::string SweepBatchAdvice(const std::vector<SweepRow>& rows) {
  const auto batches = [](const SweepRow& row) { return row.sizing.slots.goodput_bps; };
  const auto best = std::ranges::max_element(rows, {}, batches);
  if (batches(*best) <= 0) return "Batches are not applicable at any of these values.";
  std::string text =
      absl::StrCat("Batches do best at ", best->value, ", ", absl::string_view(FormatBitRate(batches(*best))));
  const std::vector<Tooth> teeth = FindTeeth(rows);
  std::string troughs;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (teeth[i] == Tooth::kTrough) absl::StrAppend(&troughs, troughs.empty() ? "" : ", ", rows[i].value);
  }
  if (!troughs.empty()) absl::StrAppend(&text, "; they fall by 5 % or more on reaching ", troughs);
  return absl::StrCat(text, ".");
}

}  // namespace sluice
