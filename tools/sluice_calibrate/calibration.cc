#include "tools/sluice_calibrate/calibration.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "lib/cli/units.h"
#include "tools/percentile.h"
#include "tools/sluice_calibrate/estimates.h"

namespace sluice {
namespace {

constexpr int64_t kFirstInFlightBytes = 8 << 10;

// The measured overhead of gRPC's frames, and of the acknowledgements of the request, for one response. It only serves
// to plan a target: the bytes actually in flight are counted.
constexpr int64_t kAnswerOverheadBytes = 110;
// Two CPUs, shared by the workers and this program, handle twice this rate.
constexpr double kAnswersPerSecond = 4000;
constexpr int kFewestAnswers = 3;  // with fewer, the port idles when one is late
constexpr int kTypicalAnswers = 16;
constexpr int kMaxAnswers = 64;
// A new connection sends this many packets at once.
constexpr int64_t kInitialWindowPackets = 10;
constexpr absl::Duration kLoopTime = absl::Milliseconds(150);
constexpr double kFillSlowness = 3;  // factor by which filling is slower than the link, so that the queue grows slowly
constexpr double kLoopRounds = 12;   // the minimum number of full buffers that a loop sends
constexpr absl::Duration kMaxLoopTime = absl::Seconds(3);

constexpr double kGrowth = 1.05;  // growth of the rate; a smaller factor is no growth
constexpr int kRateLoops = 6;
constexpr absl::Duration kRateLoopTime = absl::Milliseconds(300);

constexpr double kBusy = 0.9;  // best window of a loop over the rate; below it, the port was not busy
constexpr int kBusyAttempts = 4;
constexpr double kPrecision = 0.03;
constexpr double kWithoutLoss = 0.85;  // share of the largest lossless amount, which may be lossy at another time
constexpr int kLoopsInRound = 6;
constexpr int kFewestRounds = 2;
constexpr int kMaxRounds = 8;
constexpr double kEnough = 0.06;  // width of the interval relative to the buffer
constexpr int kFewestHosts = 2;

// The progress at the start of each phase, as a share of the usual time.
constexpr double kTimersFrom = 0.02;
constexpr double kRoundTripsFrom = 0.1;
constexpr double kRateFrom = 0.2;
constexpr double kBufferFrom = 0.4;
constexpr double kTypicalBufferLoops = 45;

// One calibration in progress.
class Run {
 public:
  Run(Prober& prober, const CalibrationOptions& options) : prober_(prober), options_(options) {}

  absl::StatusOr<Measurements> Measure() {
    absl::Status status = MeasureHostAndPath();
    if (status.ok() && CanMeasureLink()) {
      status = FindRate();
      const bool can_measure_buffer = CanMeasureBuffer();
      if (status.ok() && can_measure_buffer) status = FindBuffer();
      if (status.ok()) status = MeasureRate();
      if (status.ok() && can_measure_buffer) status = RepeatAroundOnset();
    }
    if (!status.ok()) return status;
    if (OutOfTime()) {
      measured_.notes.push_back(
          absl::StrCat("fewer runs than wanted: the time was up after ", sluice::FormatDuration(options_.time_limit)));
    }
    measured_.elapsed = prober_.Elapsed();
    return std::move(measured_);
  }

 private:
  // Reports progress that never decreases, although the rate is measured in two phases.
  void Tell(double share, const std::string& stage) {
    share_ = std::max(share_, share);
    if (options_.on_progress) options_.on_progress(share_, stage);
  }

  bool OutOfTime() const { return prober_.Elapsed() > options_.time_limit; }

  absl::Status MeasureHostAndPath() {
    Tell(0, "connecting to workers");
    auto path = prober_.LookAtPath();
    if (!path.ok()) return path.status();
    measured_.path = *std::move(path);
    packets_ = PacketProfile(measured_.path);
    Tell(kTimersFrom, "timers");
    auto timers = prober_.MeasureTimers();
    if (!timers.ok()) return timers.status();
    measured_.timers = *std::move(timers);
    Tell(kRoundTripsFrom, "round trips");
    auto round_trips = prober_.MeasureRoundTrips();
    if (!round_trips.ok()) return round_trips.status();
    measured_.round_trips = *std::move(round_trips);
    return absl::OkStatus();
  }

  bool CanMeasureLink() {
    if (!measured_.path.same_host) return true;
    measured_.no_rate = measured_.no_buffer = "the workers are on this host: what they send passes no port";
    return false;
  }

  bool CanMeasureBuffer() {
    const int hosts = measured_.path.hosts;
    if (!measured_.path.counts_losses) {
      measured_.no_buffer = "the workers' kernels do not tell what was lost";
    } else if (hosts < kFewestHosts) {
      measured_.no_buffer =
          absl::StrCat("all workers are on one host, whose own link holds back what a port would drop; ", kFewestHosts,
                       " hosts are wanted");
    } else if (rate_ == 0) {
      measured_.no_buffer = "the rate is not known";
    }
    return measured_.no_buffer.empty();
  }

  // Doubles the bytes in flight until two doublings have not raised the rate.
  absl::Status FindRate() {
    int idle_steps = 0;
    for (int64_t bytes = kFirstInFlightBytes; bytes <= options_.max_in_flight_bytes && idle_steps < 2; bytes *= 2) {
      Tell(kRateFrom, absl::StrCat("rate: ", FormatByteSize(bytes), " in flight"));
      auto loop = RunLoop(PlanLoop(bytes, rate_, packets_));
      if (!loop.ok()) return loop.status();
      const double rate = Percentile(WindowRates(*loop), 0.5);
      idle_steps = rate < kGrowth * rate_ ? idle_steps + 1 : 0;
      rate_ = std::max(rate_, rate);
      if (loop->lost_packets == 0) lossless_bytes_ = bytes;
      measured_.rate_loops.push_back(*std::move(loop));
    }
    return absl::OkStatus();
  }

  // Measures longer, with the longest queue that is lossless, so that a pause of this host does not leave the port
  // idle.
  absl::Status MeasureRate() {
    const auto bytes = static_cast<int64_t>(kWithoutLoss * static_cast<double>(lossless_bytes_));
    for (int i = 0; i < kRateLoops && !OutOfTime(); ++i) {
      Tell(kRateFrom, absl::StrCat("rate: ", FormatBitRate(8 * rate_)));
      ClosedLoop plan = PlanLoop(bytes, rate_, packets_);
      plan.duration = std::max(plan.duration, kRateLoopTime);
      auto loop = RunLoop(plan);
      if (!loop.ok()) return loop.status();
      measured_.rate_loops.push_back(*std::move(loop));
    }
    rate_ = EstimateRate(measured_.rate_loops).value.value_or(rate_);
    return absl::OkStatus();
  }

  // Doubles the bytes in flight until loss occurs, then bisects the interval.
  absl::Status FindBuffer() {
    const double outside = rate_ * Percentile(AnswerSeconds(), 0.5);
    int64_t low = 0;
    int64_t high = std::max(kFirstInFlightBytes, static_cast<int64_t>(outside) + kFewestAnswers * packets_.frame_bytes);
    while (true) {
      high = std::min(high, options_.max_in_flight_bytes);
      const auto lossy = IsLossy(high);
      if (!lossy.ok()) return lossy.status();
      if (*lossy) break;
      low = lossless_bytes_ = high;
      if (high == options_.max_in_flight_bytes || OutOfTime()) return absl::OkStatus();
      high *= 2;
    }
    while (low > 0 && static_cast<double>(high - low) > kPrecision * static_cast<double>(high) && !OutOfTime()) {
      const int64_t middle = low + (high - low) / 2;
      const auto lossy = IsLossy(middle);
      if (!lossy.ok()) return lossy.status();
      (*lossy ? high : low) = middle;
    }
    lossless_bytes_ = low > 0 ? low : high / 2;
    return absl::OkStatus();
  }

  // Repeats loops around the onset, over a range slightly wider than its interval, until the interval is narrow enough.
  absl::Status RepeatAroundOnset() {
    for (int round = 0; round < kMaxRounds; ++round) {
      const BufferEstimate estimate = EstimateBuffer(Trials(measured_.buffer_loops), OutsideQueue());
      if (!estimate.bytes.value.has_value()) return absl::OkStatus();
      const double around = estimate.onset_high_bytes - estimate.onset_low_bytes;
      if (round >= kFewestRounds && around < kEnough * estimate.onset_bytes) return absl::OkStatus();
      const double margin = kPrecision * estimate.onset_bytes;
      const double first = estimate.onset_low_bytes - margin;
      const double step = (around + 2 * margin) / (kLoopsInRound - 1);
      for (int i = 0; i < kLoopsInRound; ++i) {
        if (OutOfTime()) return absl::OkStatus();
        const auto loop = RunBusyLoop(static_cast<int64_t>(first + i * step));
        if (!loop.ok()) return loop.status();
      }
    }
    return absl::OkStatus();
  }

  // Decides by two loops, or by three if they differ. A loop that could not keep the port busy counts as lossless.
  absl::StatusOr<bool> IsLossy(int64_t in_flight_bytes) {
    int lossy = 0;
    for (int loops = 1; loops <= 3; ++loops) {
      const auto lost = RunBusyLoop(in_flight_bytes);
      if (!lost.ok()) return lost.status();
      lossy += *lost ? 1 : 0;
      if (loops == 2 && lossy != 1) break;
    }
    return lossy >= 2;
  }

  // Returns true if packets were lost. Tries again if a pause of this host or of a worker left the port idle.
  absl::StatusOr<bool> RunBusyLoop(int64_t in_flight_bytes) {
    for (int attempt = 0; attempt < kBusyAttempts && !OutOfTime(); ++attempt) {
      Tell(kBufferFrom + (1 - kBufferFrom) * std::min(1.0, ++buffer_loops_ / kTypicalBufferLoops),
           absl::StrCat("buffer: ", FormatByteSize(in_flight_bytes), " in flight"));
      auto loop = RunLoop(PlanLoop(in_flight_bytes, rate_, packets_));
      if (!loop.ok()) return loop.status();
      const bool lossy = loop->lost_packets > 0;
      if (!lossy && Percentile(WindowRates(*loop), 1) < kBusy * rate_) continue;
      measured_.buffer_loops.push_back(*std::move(loop));
      return lossy;
    }
    return false;
  }

  // Runs a loop, and also keeps the round trips of its connections.
  absl::StatusOr<LoopSample> RunLoop(const ClosedLoop& plan) {
    auto loop = prober_.RunLoop(plan);
    if (!loop.ok()) return loop;
    auto& kernel = measured_.round_trips.kernel;
    kernel.insert(kernel.end(), loop->round_trips.begin(), loop->round_trips.end());
    return loop;
  }

  std::vector<double> AnswerSeconds() const {
    std::vector<double> seconds;
    for (const absl::Duration time : measured_.round_trips.answers) seconds.push_back(absl::ToDoubleSeconds(time));
    return seconds;
  }

  Prober& prober_;
  const CalibrationOptions& options_;
  LinkProfile packets_;
  Measurements measured_;
  double rate_ = 0;                               // bytes per second; 0: unknown
  int64_t lossless_bytes_ = kFirstInFlightBytes;  // bytes in flight that are probably lossless
  int buffer_loops_ = 0;
  double share_ = 0;  // completed share of the calibration
};

}  // namespace

ClosedLoop PlanLoop(int64_t in_flight_bytes, double rate_bytes_per_second, const LinkProfile& packets) {
  const auto total = static_cast<double>(in_flight_bytes);
  const double answer_bytes =
      std::max(2.0 * static_cast<double>(packets.frame_bytes), rate_bytes_per_second / kAnswersPerSecond);
  int answers = std::clamp(static_cast<int>(total / answer_bytes), kFewestAnswers, kTypicalAnswers);
  const double burst_bytes = static_cast<double>(kInitialWindowPackets * packets.frame_bytes);
  answers = std::clamp(static_cast<int>(std::ceil(total / burst_bytes)), answers, kMaxAnswers);
  const int64_t payload = LargestPayloadWithin(packets, in_flight_bytes / answers - kAnswerOverheadBytes);
  const absl::Duration rounds =
      rate_bytes_per_second > 0 ? absl::Seconds(kLoopRounds * total / rate_bytes_per_second) : absl::ZeroDuration();
  const absl::Duration fill_interval = rate_bytes_per_second > 0
                                           ? absl::Seconds(kFillSlowness * total / answers / rate_bytes_per_second)
                                           : absl::ZeroDuration();
  return {.in_flight = answers,
          .payload_bytes = std::max<int64_t>(payload, 1),
          .fill_interval = fill_interval,
          .duration = std::clamp(rounds, kLoopTime, kMaxLoopTime)};
}

LinkProfile PacketProfile(const PathFacts& path) {
  LinkProfile profile;
  profile.packet_payload_bytes = path.packet_payload_bytes;
  profile.frame_bytes = path.frame_bytes;
  profile.ack_frame_bytes = path.ack_frame_bytes;
  return profile;
}

absl::StatusOr<Measurements> Calibrate(Prober& prober, const CalibrationOptions& options) {
  return Run(prober, options).Measure();
}

}  // namespace sluice
