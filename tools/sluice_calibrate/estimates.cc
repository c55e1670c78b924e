#include "tools/sluice_calibrate/estimates.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/cli/units.h"
#include "tools/percentile.h"

namespace sluice {
namespace {

// In standard deviations.
constexpr double kSigmas = 2;
constexpr size_t kFewestWindows = 5;
// A slower loop did not keep the port busy.
constexpr double kBusy = 0.95;
// A quantile of the windows of busy loops. It is above the median, since a pause of the host only makes windows slower.
// It is below the top, since a window that begins with the queue after a pause is too fast.
constexpr double kRateQuantile = 0.9;
// If more than this share of the loops well below the onset are lossy, packets are also lost elsewhere.
constexpr double kQuiet = 0.1;
constexpr double kWellBelow = 0.8;

// A cut between lossless and lossy trials: it classifies trials before `first_lossy` as lossless, and the others as
// lossy.
struct Cut {
  size_t first_lossy = 0;
  int wrong = 0;  // misclassified trials
};

// Returns every cut between two amounts. The trials must be sorted by amount.
std::vector<Cut> Cuts(absl::Span<const BufferTrial> sorted) {
  std::vector<Cut> cuts;
  int lossless_above = 0;
  for (const BufferTrial& trial : sorted) lossless_above += trial.lost_packets == 0 ? 1 : 0;
  int lossy_below = 0;
  for (size_t i = 0; i <= sorted.size(); ++i) {
    if (i == 0 || i == sorted.size() || sorted[i - 1].in_flight_bytes != sorted[i].in_flight_bytes) {
      cuts.push_back({i, lossy_below + lossless_above});
    }
    if (i == sorted.size()) break;
    (sorted[i].lost_packets == 0 ? lossless_above : lossy_below) += sorted[i].lost_packets == 0 ? -1 : 1;
  }
  return cuts;
}

// The amounts on both sides of the cuts that misclassify at most `wrong` trials. A cut at an end has no amount on one
// side.
struct Bracket {
  std::optional<int64_t> low;
  std::optional<int64_t> high;
};

Bracket BracketOf(absl::Span<const BufferTrial> sorted, const std::vector<Cut>& cuts, int wrong) {
  const auto fits = [wrong](const Cut& cut) { return cut.wrong <= wrong; };
  const size_t first = std::find_if(cuts.begin(), cuts.end(), fits)->first_lossy;
  const size_t last = std::find_if(cuts.rbegin(), cuts.rend(), fits)->first_lossy;
  Bracket bracket;
  if (first > 0) bracket.low = sorted[first - 1].in_flight_bytes;
  if (last < sorted.size()) bracket.high = sorted[last].in_flight_bytes;
  return bracket;
}

std::string OtherLosses(absl::Span<const BufferTrial> sorted, double onset_bytes) {
  int lossy = 0;
  int all = 0;
  for (const BufferTrial& trial : sorted) {
    if (static_cast<double>(trial.in_flight_bytes) >= kWellBelow * onset_bytes) break;
    ++all;
    lossy += trial.lost_packets > 0 ? 1 : 0;
  }
  if (lossy <= kQuiet * all) return "";
  return absl::StrCat("packets were also lost in ", lossy, " of ", all,
                      " runs with much less in flight: other traffic on the link");
}

std::string InKib(double bytes) {
  return FormatByteSize(static_cast<int64_t>(std::max(bytes, 0.0)));
}

}  // namespace

Estimate NotDetermined(std::string why) {
  Estimate estimate;
  estimate.note = std::move(why);
  return estimate;
}

Estimate EstimateQuantile(std::vector<double> values, double p) {
  if (values.empty()) return NotDetermined("no samples");
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  const double spread = kSigmas * std::sqrt(count * p * (1 - p));
  const auto at_rank = [&](double rank) {
    return values[static_cast<size_t>(std::clamp(std::ceil(rank), 1.0, count)) - 1];
  };
  return {.value = at_rank(count * p),
          .low = at_rank(count * p - spread),
          .high = at_rank(count * p + spread),
          .samples = static_cast<int64_t>(values.size())};
}

Estimate EstimateMinimum(absl::Span<const double> values) {
  if (values.empty()) return NotDetermined("no samples");
  constexpr size_t kParts = 4;
  const double least = *std::min_element(values.begin(), values.end());
  double high = least;
  for (size_t part = 0; part < kParts; ++part) {
    const auto samples = values.subspan(part * values.size() / kParts,
                                        (part + 1) * values.size() / kParts - part * values.size() / kParts);
    if (!samples.empty()) high = std::max(high, *std::min_element(samples.begin(), samples.end()));
  }
  return {.value = least, .low = least, .high = high, .samples = static_cast<int64_t>(values.size())};
}

std::vector<double> WindowRates(const LoopSample& loop) {
  std::vector<double> rates;
  rates.reserve(loop.windows.size());
  for (const WireWindow& window : loop.windows) rates.push_back(window.BytesPerSecond());
  return rates;
}

Estimate EstimateRate(absl::Span<const LoopSample> loops) {
  double best = 0;
  for (const LoopSample& loop : loops) best = std::max(best, Percentile(WindowRates(loop), 0.5));
  std::vector<double> rates;
  for (const LoopSample& loop : loops) {
    if (loop.lost_packets > 0 || Percentile(WindowRates(loop), 0.5) < kBusy * best) continue;
    const std::vector<double> more = WindowRates(loop);
    rates.insert(rates.end(), more.begin(), more.end());
  }
  if (rates.size() < kFewestWindows) {
    return NotDetermined(absl::StrCat("only ", rates.size(), " windows without loss; ", kFewestWindows, " are wanted"));
  }
  return EstimateQuantile(std::move(rates), kRateQuantile);
}

std::vector<BufferTrial> Trials(absl::Span<const LoopSample> loops) {
  std::vector<BufferTrial> trials;
  for (const LoopSample& loop : loops) trials.push_back({loop.in_flight_bytes, loop.lost_packets});
  return trials;
}

OutsideQueue EstimateOutsideQueue(double rate_bytes_per_second, int64_t frame_bytes,
                                  absl::Span<const absl::Duration> answer_times) {
  if (answer_times.empty()) return {};
  std::vector<double> sent;
  for (const absl::Duration time : answer_times) sent.push_back(rate_bytes_per_second * absl::ToDoubleSeconds(time));
  const auto frame = static_cast<double>(frame_bytes);
  const double usual = Percentile(sent, 0.5);
  return {.low_bytes = std::max(*std::min_element(sent.begin(), sent.end()) - frame, 0.0),
          .usual_bytes = std::max(usual - frame, 0.0),
          .high_bytes = usual};
}

BufferEstimate EstimateBuffer(absl::Span<const BufferTrial> trials, const OutsideQueue& outside) {
  if (trials.empty()) return {NotDetermined("no run kept the port busy: this host or the workers are too slow")};
  std::vector<BufferTrial> sorted(trials.begin(), trials.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.in_flight_bytes < b.in_flight_bytes; });
  const std::vector<Cut> cuts = Cuts(sorted);
  const int wrong =
      std::min_element(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) { return a.wrong < b.wrong; })->wrong;
  const Bracket best = BracketOf(sorted, cuts, wrong);
  if (!best.high.has_value()) {
    return {NotDetermined(absl::StrCat("larger than ", InKib(static_cast<double>(*best.low) - outside.high_bytes),
                                       ": no loss begins with up to that in the queue"))};
  }
  if (!best.low.has_value()) {
    return {NotDetermined(absl::StrCat("packets are lost with as little as ",
                                       InKib(static_cast<double>(sorted.front().in_flight_bytes)),
                                       " in flight: other traffic on the link, or a buffer smaller than that"))};
  }
  // Allow one more misclassified trial for the interval.
  const Bracket wide = BracketOf(sorted, cuts, wrong + 1);
  BufferEstimate estimate;
  estimate.onset_bytes = 0.5 * static_cast<double>(*best.low + *best.high);
  estimate.onset_low_bytes = static_cast<double>(wide.low.value_or(sorted.front().in_flight_bytes));
  estimate.onset_high_bytes = static_cast<double>(wide.high.value_or(sorted.back().in_flight_bytes));
  estimate.bytes = {.value = std::max(estimate.onset_bytes - outside.usual_bytes, 1.0),
                    .low = std::max(estimate.onset_low_bytes - outside.high_bytes, 1.0),
                    .high = std::max(estimate.onset_high_bytes - outside.low_bytes, 1.0),
                    .samples = static_cast<int64_t>(sorted.size()),
                    .note = OtherLosses(sorted, estimate.onset_bytes)};
  return estimate;
}

}  // namespace sluice
