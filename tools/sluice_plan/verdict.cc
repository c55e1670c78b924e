#include "tools/sluice_plan/verdict.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/cli/units.h"

namespace sluice {
namespace {

constexpr double kNeededGain = 1.05;

int64_t BytesAtOnce(const Sizing& sizing) {
  return sizing.read.workers * BufferCostBytes(sizing.read.profile, sizing.sru_bytes);
}

// "0.0042", "0.31", "above 0.99": 1 would claim a certainty that no model has.
std::string Probability(double value) {
  return value > 0.99 ? "above 0.99" : absl::StrFormat("%.2g", value);
}

double TodayBps(const SweepRow& row) {
  return row.sizing.unscheduled.goodput_bps;
}
double WithSluiceBps(const SweepRow& row) {
  return row.sizing.rolling_goodput_bps;
}

std::string Reason(const Sizing& sizing) {
  const int64_t workers = sizing.read.workers;
  const std::string response = FormatByteSize(sizing.sru_bytes);
  const std::string needed = FormatByteSize(BytesAtOnce(sizing));
  const std::string buffer = FormatByteSize(BufferBudgetBytes(sizing.read.profile));
  if (JudgeNeed(sizing) == Need::kNotNeeded) {
    return absl::StrFormat(
        "All %d responses of %s fit the port buffer together: %s of %s. Fan-outs that overlap add up.", workers,
        response, needed, buffer);
  }
  const CollapseEstimate& collapse = sizing.unscheduled;
  const std::string timeout = sluice::FormatDuration(sizing.read.unscheduled.rto_min);
  std::string text = absl::StrFormat(
      "%d responses of %s put up to %s at once into a buffer of %s. Without a schedule, at windows of %.3g packets, a "
      "packet is lost with probability %s, and a block waits for a TCP timeout of %s with probability %s (a "
      "qualitative model).",
      workers, response, needed, buffer, collapse.window_packets, Probability(collapse.loss_probability), timeout,
      Probability(collapse.block_timeout_probability));
  if (JudgeNeed(sizing) == Need::kPerhaps) {
    absl::StrAppend(&text, " The model does not count workers that lose only the end of a window, with probability ",
                    absl::string_view(Probability(collapse.lack_of_acks_probability)),
                    " each; some of them wait as long.");
  }
  return text;
}

// What the windows of tunnels allow if workers think.
std::string OfTunnels(const Sizing& sizing) {
  const Read& read = sizing.read;
  if (read.think_time <= absl::ZeroDuration()) return "";
  return absl::StrFormat(
      "Workers that think for %s cost calls nothing, since their requests leave early. Tunnels of any protocol carry "
      "%s: "
      "each holds a window of %d packets while its worker thinks, and %d windows fit the buffer.\n",
      sluice::FormatDuration(read.think_time), FormatBitRate(sizing.tunnel_goodput_bps), kTunnelWindowPackets,
      std::max<int64_t>(1, BufferBudgetBytes(read.profile) / (kTunnelWindowPackets * read.profile.frame_bytes)));
}

// "16 KiB", or "16 KiB to 64 KiB, 256 KiB": the values with this need, in runs.
std::string Runs(const std::vector<SweepRow>& rows, Need need) {
  const auto holds = [&](size_t i) { return JudgeNeed(rows[i].sizing) == need; };
  std::string text;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!holds(i)) continue;
    const size_t first = i;
    while (i + 1 < rows.size() && holds(i + 1)) ++i;
    absl::StrAppend(&text, text.empty() ? "" : ", ", rows[first].value);
    if (i > first) absl::StrAppend(&text, " to ", rows[i].value);
  }
  return text;
}

// "6.33 Mbit/s to 95.1 Mbit/s", or one rate.
std::string Range(const std::vector<SweepRow>& rows, double (*goodput)(const SweepRow&)) {
  const auto [least, most] = std::ranges::minmax(rows, {}, goodput);
  const std::string low = FormatBitRate(goodput(least));
  const std::string high = FormatBitRate(goodput(most));
  return low == high ? low : absl::StrFormat("%s to %s", low, high);
}

}  // namespace

Need JudgeNeed(const Sizing& sizing) {
  if (BytesAtOnce(sizing) <= BufferBudgetBytes(sizing.read.profile)) return Need::kNotNeeded;
  const bool gains = sizing.rolling_goodput_bps >= kNeededGain * sizing.unscheduled.goodput_bps;
  return gains ? Need::kNeeded : Need::kPerhaps;
}

const char* NeedName(Need need) {
  switch (need) {
    case Need::kNotNeeded:
      return "not needed";
    case Need::kPerhaps:
      return "may be needed";
    case Need::kNeeded:
      return "needed";
  }
  return "";
}

std::string Verdict(const Sizing& sizing) {
  const Need need = JudgeNeed(sizing);
  return absl::StrFormat("Sluice %s%s: today about %s, with Sluice %s.\n%s\n%s", need == Need::kPerhaps ? "" : "is ",
                         NeedName(need), FormatBitRate(sizing.unscheduled.goodput_bps),
                         FormatBitRate(sizing.rolling_goodput_bps), Reason(sizing), OfTunnels(sizing));
}

std::string SweepVerdict(const std::string& swept, const std::vector<SweepRow>& rows) {
  std::string text;
  for (const Need need : {Need::kNeeded, Need::kPerhaps, Need::kNotNeeded}) {
    const std::string values = Runs(rows, need);
    if (values.empty()) continue;
    absl::StrAppend(&text, text.empty() ? "Sluice " : "; ", need == Need::kPerhaps ? "" : "is ", NeedName(need), " at ",
                    text.empty() ? swept + " = " : "", values);
  }
  const auto worst = std::ranges::min_element(rows, {}, TodayBps);
  return absl::StrFormat("%s.\nToday about %s (a qualitative model), worst at %s; with Sluice %s.\n", text,
                         Range(rows, TodayBps), worst->value, Range(rows, WithSluiceBps));
}

std::string NextStep(Need need) {
  if (need == Need::kNeeded) {
    return "Next: sluice-proxy in front of the client, or the library in it. docs/start of the repository has both.\n";
  }
  return "Next: sluice-diagnose on the aggregator's host says whether its responses wait for TCP timeouts today.\n";
}

}  // namespace sluice
