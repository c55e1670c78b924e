#include "tools/sluice_calibrate/report.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "sluice/link_profile.h"
#include "sluice/v1/config.pb.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/cli/units.h"
#include "tools/percentile.h"
#include "tools/sluice_calibrate/estimates.h"

namespace sluice {
namespace {

constexpr double kBitsPerByte = 8;
constexpr double kJitterQuantile = 0.99;
// Above these shares of one CPU (this process) or of all CPUs (all processes), the CPU may have been the bottleneck.
constexpr double kProcessBusy = 0.8;
constexpr double kHostBusy = 0.95;

std::vector<double> Seconds(const std::vector<absl::Duration>& durations) {
  std::vector<double> seconds;
  seconds.reserve(durations.size());
  for (const absl::Duration duration : durations) seconds.push_back(absl::ToDoubleSeconds(duration));
  return seconds;
}

void AddFigure(const char* name, const char* unit, const Estimate& estimate, v1::Calibration& report) {
  v1::Figure& figure = *report.add_figures();
  figure.set_name(name);
  figure.set_unit(unit);
  figure.set_note(estimate.note);
  if (!estimate.value.has_value()) return;
  figure.set_value(*estimate.value);
  figure.set_low(estimate.low);
  figure.set_high(estimate.high);
  figure.set_samples(static_cast<int32_t>(estimate.samples));
}

Estimate Scaled(Estimate estimate, double factor) {
  if (estimate.value.has_value()) *estimate.value *= factor;
  estimate.low *= factor;
  estimate.high *= factor;
  return estimate;
}

// Four digits contain all significant information.
std::string Rounded(double value) {
  const double step = std::pow(10, std::floor(std::log10(value)) - 3);
  return absl::StrCat(static_cast<int64_t>(std::max(step, 1.0) * std::round(value / std::max(step, 1.0))));
}

std::string DurationText(double seconds) {
  constexpr double kStep = 1e-7;
  return absl::FormatDuration(absl::Nanoseconds(100) * std::llround(seconds / kStep));
}

void ReportTimers(const TimerSamples& timers, v1::Calibration& report) {
  const std::vector<double> lateness = Seconds(timers.lateness);
  const Estimate step = EstimateQuantile(Seconds(timers.steps), 0.5);
  AddFigure("timer_granularity", "s", step, report);
  if (step.value.has_value()) report.mutable_link()->set_timer_granularity(DurationText(*step.value));
  for (const auto& [name, p] : {std::pair{"timer_lateness_p50", 0.5},
                                {"timer_lateness_p90", 0.9},
                                {"timer_lateness_p99", kJitterQuantile},
                                {"timer_lateness_p999", 0.999}}) {
    AddFigure(name, "s", EstimateQuantile(lateness, p), report);
  }
  Estimate latest = NotDetermined("no samples");
  if (!lateness.empty()) {
    latest = {.value = *std::max_element(lateness.begin(), lateness.end())};
    latest.low = latest.high = *latest.value;
    latest.samples = static_cast<int64_t>(lateness.size());
    report.mutable_link()->set_jitter(DurationText(*EstimateQuantile(lateness, kJitterQuantile).value));
  }
  AddFigure("timer_lateness_max", "s", latest, report);
}

void ReportRoundTrips(const RoundTripSamples& round_trips, v1::Calibration& report) {
  const std::vector<double> kernel = Seconds(round_trips.kernel);
  const Estimate least = EstimateMinimum(kernel);
  AddFigure("rtt_min", "s", least, report);
  AddFigure("rtt_median", "s", EstimateQuantile(kernel, 0.5), report);
  AddFigure("answer_time_min", "s", EstimateMinimum(Seconds(round_trips.answers)), report);
  AddFigure("answer_time_median", "s", EstimateQuantile(Seconds(round_trips.answers), 0.5), report);
  if (least.value.has_value()) report.mutable_link()->set_rtt(DurationText(*least.value));
}

void ReportPackets(const PathFacts& path, v1::Calibration& report) {
  v1::LinkProfile& link = *report.mutable_link();
  LinkProfile usual;
  usual.SetMtu(path.mtu_bytes);
  if (usual.packet_payload_bytes == path.packet_payload_bytes && usual.frame_bytes == path.frame_bytes &&
      usual.ack_frame_bytes == path.ack_frame_bytes) {
    link.set_mtu(path.mtu_bytes);
  } else {
    link.set_packet_payload(path.packet_payload_bytes);
    link.set_frame(path.frame_bytes);
    link.set_ack(path.ack_frame_bytes);
  }
}

std::vector<LoopSample> AllLoops(const Measurements& measured) {
  std::vector<LoopSample> loops = measured.rate_loops;
  loops.insert(loops.end(), measured.buffer_loops.begin(), measured.buffer_loops.end());
  return loops;
}

// Returns the median.
double UsualShare(const std::vector<LoopSample>& loops, double LoopSample::*share) {
  std::vector<double> shares;
  for (const LoopSample& loop : loops) shares.push_back(loop.*share);
  return Percentile(std::move(shares), 0.5);
}

Estimate RateOf(const Measurements& measured) {
  if (!measured.no_rate.empty()) return NotDetermined(measured.no_rate);
  const std::vector<LoopSample> loops = AllLoops(measured);
  const Estimate rate = EstimateRate(loops);
  // Only a port loses packets, so any loss shows that the port was the bottleneck.
  const bool any_lost =
      std::any_of(loops.begin(), loops.end(), [](const LoopSample& loop) { return loop.lost_packets > 0; });
  if (!rate.value.has_value() || any_lost || UsualShare(loops, &LoopSample::process_share) < kProcessBusy) return rate;
  return NotDetermined(absl::StrCat("at least ", FormatBitRate(kBitsPerByte * *rate.value),
                                    ": sluice-calibrate was busy with it, and no port lost anything"));
}

void NoteBusyHost(const Measurements& measured, v1::Calibration& report) {
  const double share = UsualShare(AllLoops(measured), &LoopSample::host_share);
  if (share < kHostBusy) return;
  report.add_notes(
      absl::StrFormat("the processors of this host were busy %.0f %% of the time: what was measured may be "
                      "theirs, not the link's; repeat it on a quiet host",
                      100 * share));
}

void ReportBuffer(const Measurements& measured, double rate, v1::Calibration& report) {
  BufferEstimate buffer = {NotDetermined(measured.no_buffer)};
  if (measured.no_buffer.empty()) {
    const OutsideQueue outside = EstimateOutsideQueue(rate, measured.path.frame_bytes, measured.round_trips.answers);
    for (const LoopSample& loop : measured.buffer_loops) {
      v1::LoadRun& run = *report.add_buffer_runs();
      const double queue_bytes = static_cast<double>(loop.in_flight_bytes) - outside.usual_bytes;
      run.set_in_flight_bytes(static_cast<int32_t>(loop.in_flight_bytes));
      run.set_queue_bytes(static_cast<int32_t>(std::max(queue_bytes, 0.0)));
      run.set_lost_packets(static_cast<int32_t>(loop.lost_packets));
    }
    buffer = EstimateBuffer(Trials(measured.buffer_loops), outside);
    if (buffer.bytes.value.has_value() && rate == 0) buffer.bytes = NotDetermined("the rate is not determined");
  }
  AddFigure("buffer", "B", buffer.bytes, report);
  if (buffer.bytes.value.has_value()) report.mutable_link()->set_buffer(Rounded(*buffer.bytes.value));
}

}  // namespace

v1::Calibration MakeReport(const Measurements& measured) {
  v1::Calibration report;
  report.mutable_link()->set_connections("persistent");
  const Estimate rate = RateOf(measured);
  AddFigure("capacity", "bit/s", Scaled(rate, kBitsPerByte), report);
  if (rate.value.has_value()) {
    report.mutable_link()->set_capacity(absl::StrCat(Rounded(kBitsPerByte * *rate.value), "bit"));
  }
  ReportBuffer(measured, rate.value.value_or(0), report);
  ReportRoundTrips(measured.round_trips, report);
  ReportPackets(measured.path, report);
  ReportTimers(measured.timers, report);
  report.set_seconds(absl::ToDoubleSeconds(measured.elapsed));
  NoteBusyHost(measured, report);
  for (const auto& notes : {measured.path.notes, measured.notes})
    report.mutable_notes()->Add(notes.begin(), notes.end());
  return report;
}

bool IsComplete(const v1::Calibration& report) {
  return std::all_of(report.figures().begin(), report.figures().end(),
                     [](const v1::Figure& figure) { return figure.has_value(); });
}

}  // namespace sluice
