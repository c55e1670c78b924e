#include "tools/sluice_plan/advice.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/cli/units.h"
#include "tools/sluice_plan/table.h"

namespace sluice {
namespace {

constexpr double kWorthAChange = 1.05;
constexpr double kCollapse = 0.5;  // likelier than not
constexpr int64_t kSruCandidates = 1024;

int64_t BytesAtOnce(const Sizing& sizing) {
  return sizing.read.workers * BufferCostBytes(sizing.read.profile, sizing.sru_bytes);
}

bool AllFitAtOnce(const Sizing& sizing) {
  return BytesAtOnce(sizing) <= BufferBudgetBytes(sizing.read.profile);
}

// Returns "0.0042", "0.31" or "above 0.99": 1 would claim a certainty that no model has.
std::string Probability(double value) {
  return value > 0.99 ? "above 0.99" : absl::StrFormat("%.2g", value);
}

std::string Problem(const Sizing& sizing) {
  const CollapseEstimate& collapse = sizing.unscheduled;
  return absl::StrFormat(
      "This read has the incast problem: %d responses at once put up to %s into a buffer of %s. Without a schedule, at "
      "windows of %.3g packets, a packet is lost with probability %s, a worker times out with %s, and the block waits "
      "for a timeout of %s with %s: goodput is about %s (a qualitative model).",
      sizing.read.workers, FormatByteSize(BytesAtOnce(sizing)), FormatByteSize(BufferBudgetBytes(sizing.read.profile)),
      collapse.window_packets, Probability(collapse.loss_probability), Probability(collapse.timeout_probability),
      sluice::FormatDuration(sizing.read.unscheduled.rto_min), Probability(collapse.block_timeout_probability),
      FormatBitRate(collapse.goodput_bps));
}

// Returns the largest share of a slot: sending a batch over the link, round trips over a full buffer, or the timer.
std::string Limit(const Sizing& sizing) {
  const LinkProfile& profile = sizing.read.profile;
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

// Returns the nearest N that is worth the change. It tries larger N first: fewer workers are seldom possible.
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

// Returns the best SRU of full packets, from half to twice the size of this one.
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
    absl::StrAppend(&text, " Next better: N = ", other->read.workers, " (",
                    absl::string_view(FormatBitRate(other->slots.goodput_bps)), ").");
  }
  if (sizing.read.block_bytes) return text;
  if (const auto other = BetterSru(sizing)) {
    absl::StrAppend(&text, " Better SRU size: ", other->sru_bytes, " bytes (",
                    absl::string_view(FormatBitRate(other->slots.goodput_bps)), ").");
  }
  return text;
}

// Returns the ranges of values for which `holds` is true: "16 KiB", or "16 KiB to 64 KiB, 256 KiB".
template <class Holds>
std::string Runs(const std::vector<SweepRow>& rows, Holds holds) {
  std::string text;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!holds(rows[i])) continue;
    const size_t first = i;
    while (i + 1 < rows.size() && holds(rows[i + 1])) ++i;
    absl::StrAppend(&text, text.empty() ? "" : ", ", rows[first].value);
    if (i > first) absl::StrAppend(&text, " to ", rows[i].value);
  }
  return text;
}

}  // namespace

std::string Advice(const Sizing& sizing) {
  if (AllFitAtOnce(sizing)) {
    return absl::StrFormat("No incast problem: all %d responses together fit the buffer, so every policy is lossless.",
                           sizing.read.workers);
  }
  return absl::StrCat(Problem(sizing), " ", Limit(sizing), Better(sizing), " A closed loop (grants, rolling) reaches ",
                      absl::string_view(FormatBitRate(sizing.rolling_goodput_bps)), ".");
}

std::string SweepAdvice(const std::string& swept, const std::vector<SweepRow>& rows) {
  const auto collapses = [](const SweepRow& row) {
    return row.sizing.unscheduled.block_timeout_probability >= kCollapse;
  };
  const auto unscheduled = [](const SweepRow& row) { return row.sizing.unscheduled.goodput_bps; };
  const auto closed_loop = [](const SweepRow& row) { return row.sizing.rolling_goodput_bps; };
  const auto batches = [](const SweepRow& row) { return row.sizing.slots.goodput_bps; };
  std::string text;
  if (const std::string where = Runs(rows, collapses); where.empty()) {
    absl::StrAppend(&text, "Without a schedule no block is likelier than not to wait for a timeout");
  } else {
    absl::StrAppend(&text, "Without a schedule a block is likelier than not to wait for a timeout at ", swept, " = ",
                    where);
  }
  const auto worst = std::ranges::min_element(rows, {}, unscheduled);
  const auto best = std::ranges::max_element(rows, {}, batches);
  const auto [least, most] = std::ranges::minmax(rows, {}, closed_loop);
  absl::StrAppend(&text, "; goodput is worst at ", worst->value, ", about ",
                  absl::string_view(FormatBitRate(unscheduled(*worst))), " (a qualitative model).");
  if (batches(*best) > 0) {
    absl::StrAppend(&text, " Batches do best at ", best->value, ", ", absl::string_view(FormatBitRate(batches(*best))));
  } else {
    absl::StrAppend(&text, " Batches are not applicable at any of them");
  }
  const std::vector<Tooth> teeth = FindTeeth(rows);
  std::string troughs;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (teeth[i] == Tooth::kTrough) absl::StrAppend(&troughs, troughs.empty() ? "" : ", ", rows[i].value);
  }
  if (!troughs.empty()) absl::StrAppend(&text, "; they fall by 5 % or more on reaching ", troughs);
  absl::StrAppend(&text, ". A closed loop (grants, rolling) reaches ",
                  absl::string_view(FormatBitRate(closed_loop(least))), " to ",
                  absl::string_view(FormatBitRate(closed_loop(most))), ".");
  return text;
}

}  // namespace sluice
