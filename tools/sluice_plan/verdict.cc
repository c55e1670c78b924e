#include "tools/sluice_plan/verdict.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/cli/units.h"

namespace sluice {
namespace {

constexpr double kNeededGain = 1.05;

// "20.5 Mbit/s", or "unknown".
std::string Today(const Sizing& sizing) {
  return sizing.unscheduled_goodput_bps ? FormatBitRate(*sizing.unscheduled_goodput_bps) : "unknown";
}

std::string Reason(const Sizing& sizing) {
  const int64_t workers = sizing.read.workers;
  const std::string response = FormatByteSize(sizing.sru_bytes);
  const std::string buffer = FormatByteSize(BufferBudgetBytes(sizing.read.profile));
  if (JudgeNeed(sizing) == Need::kNotNeeded) {
    const int64_t cost = BufferCostBytes(sizing.read.profile, sizing.sru_bytes);
    return absl::StrFormat(
        "All %d responses of %s fit the port buffer together: %s of %s. Fan-outs that overlap add up.", workers,
        response, FormatByteSize(workers * cost), buffer);
  }
  std::string text =
      absl::StrFormat("%d responses of %s are %s (the buffer has %s).", workers, response, WhyUnknown(sizing), buffer);
  if (CollapseIsLikely(sizing)) {
    absl::StrAppend(&text, " The model of collapse expects most fan-outs to wait for a TCP timeout of ",
                    absl::string_view(sluice::FormatDuration(sizing.read.unscheduled.rto_min)), " or more.");
  }
  return text;
}

// The case in which the budget, not the link, limits the default policy; otherwise nothing. `path` opens the sentence.
std::string OfLongPath(const Sizing& sizing, const std::string& path) {
  if (sizing.grants_link_share >= 1) return "";
  const LinkProfile& profile = sizing.read.profile;
  const double path_bytes = profile.capacity_bytes_per_second * absl::ToDoubleSeconds(profile.propagation_rtt);
  return absl::StrFormat(
      "%s holds %s and the budget is %s, so grants keep the link busy for %.0f %% of the time at most. That may be "
      "slower than no schedule; schedule.paced is for such paths.\n",
      path, FormatByteSize(std::llround(path_bytes)), FormatByteSize(BufferBudgetBytes(profile)),
      100 * sizing.grants_link_share);
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
std::string Range(const std::vector<double>& goodputs_bps) {
  const auto [least, most] = std::ranges::minmax(goodputs_bps);
  const std::string low = FormatBitRate(least);
  const std::string high = FormatBitRate(most);
  return low == high ? low : absl::StrFormat("%s to %s", low, high);
}

// "Today 870 Mbit/s to 950 Mbit/s if all responses fit the buffer, otherwise unknown: the responses exceed ..."
std::string RangeToday(const std::vector<SweepRow>& rows) {
  std::vector<double> goodputs_bps;
  for (const SweepRow& row : rows) {
    if (row.sizing.unscheduled_goodput_bps) goodputs_bps.push_back(*row.sizing.unscheduled_goodput_bps);
  }
  if (goodputs_bps.size() == rows.size()) return absl::StrCat("Today ", absl::string_view(Range(goodputs_bps)));
  const std::string unknown = absl::StrCat("unknown: the responses exceed the buffer, ", kCannotSay);
  if (goodputs_bps.empty()) return absl::StrCat("Today ", unknown);
  return absl::StrCat("Today ", absl::string_view(Range(goodputs_bps)), " if all responses fit the buffer, otherwise ",
                      unknown);
}

}  // namespace

Need JudgeNeed(const Sizing& sizing) {
  if (sizing.unscheduled_goodput_bps) return Need::kNotNeeded;
  const bool gains = sizing.grants_goodput_bps >= kNeededGain * sizing.collapse.goodput_bps;
  return gains ? Need::kNeeded : Need::kPerhaps;
}

std::string WhyUnknown(const Sizing& sizing) {
  if (sizing.unscheduled_goodput_bps) return "";
  return absl::StrCat(absl::string_view(FormatByteSize(sizing.excess_bytes)), " more than the buffer: ", kCannotSay);
}

bool CollapseIsLikely(const Sizing& sizing) {
  return !sizing.unscheduled_goodput_bps && sizing.collapse.block_timeout_probability >= 0.5;
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
  return absl::StrFormat("Sluice %s%s: today %s, with Sluice %s.\n%s\n%s%s", need == Need::kPerhaps ? "" : "is ",
                         NeedName(need), Today(sizing), FormatBitRate(sizing.grants_goodput_bps), Reason(sizing),
                         OfLongPath(sizing, "The path"), OfTunnels(sizing));
}

std::string SweepVerdict(const std::string& swept, const std::vector<SweepRow>& rows) {
  std::string text;
  for (const Need need : {Need::kNeeded, Need::kPerhaps, Need::kNotNeeded}) {
    const std::string values = Runs(rows, need);
    if (values.empty()) continue;
    absl::StrAppend(&text, text.empty() ? "Sluice " : "; ", need == Need::kPerhaps ? "" : "is ", NeedName(need), " at ",
                    text.empty() ? swept + " = " : "", values);
  }
  std::vector<double> with_sluice_bps;
  for (const SweepRow& row : rows) with_sluice_bps.push_back(row.sizing.grants_goodput_bps);
  const auto longest =
      std::ranges::min_element(rows, {}, [](const SweepRow& row) { return row.sizing.grants_link_share; });
  absl::StrAppend(&text, ".\n", absl::string_view(RangeToday(rows)), ". With Sluice ",
                  absl::string_view(Range(with_sluice_bps)), ".\n");
  return text + OfLongPath(longest->sizing, absl::StrFormat("With %s = %s, the path", swept, longest->value));
}

std::string NextStep(Need need) {
  if (need == Need::kNeeded) {
    return "Next: sluice-proxy in front of the client, or the library in it. docs/start of the repository has both.\n";
  }
  return "Next: sluice-diagnose on the aggregator's host says whether its responses wait for TCP timeouts today.\n";
}

}  // namespace sluice
