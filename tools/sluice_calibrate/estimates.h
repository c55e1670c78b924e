#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tools/sluice_calibrate/prober.h"

// Pure functions that make figures from the samples of a calibration. docs/guides/calibrate.md derives them.
namespace sluice {

// A figure, and how far to trust it. A plain value.
struct Estimate {
  std::optional<double> value;  // none: not determined
  double low = 0;               // of the interval around it
  double high = 0;
  int64_t samples = 0;
  std::string note;  // why it is not determined, or what to know of it
};

Estimate NotDetermined(std::string why);

// Returns the p-quantile, 0 < p < 1, with the interval that holds it at 95 %, whatever the distribution is: the samples
// whose ranks are two standard deviations of a binomial count away.
Estimate EstimateQuantile(std::vector<double> values, double p);

// Returns the least of all samples, and the largest of the least of each quarter of them, which shows how well it
// repeats.
Estimate EstimateMinimum(absl::Span<const double> values);

// Returns the rate of each window, in bytes per second.
std::vector<double> WindowRates(const LoopSample& loop);

// Estimates C, in bytes per second, from loops that kept the port busy and lost nothing.
Estimate EstimateRate(absl::Span<const LoopSample> loops);

// A loop that had so much in flight. Loops that did not keep the port busy do not count.
struct BufferTrial {
  int64_t in_flight_bytes = 0;
  int64_t lost_packets = 0;
};

std::vector<BufferTrial> Trials(absl::Span<const LoopSample> loops);

// How much of what is in flight is not in the queue when the queue is fullest: what the port sends from an answer until
// the next one of its place in the loop has come, less the packet that it is sending then, which is in the buffer until
// its end.
struct OutsideQueue {
  double low_bytes = 0;
  double usual_bytes = 0;
  double high_bytes = 0;
};
// Estimates it from the times of the smallest answers, one at a time.
OutsideQueue EstimateOutsideQueue(double rate_bytes_per_second, int64_t frame_bytes,
                                  absl::Span<const absl::Duration> answer_times);

struct BufferEstimate {
  Estimate bytes;
  // What is in flight where loss begins.
  double onset_bytes = 0;
  double onset_low_bytes = 0;
  double onset_high_bytes = 0;
};

// Estimates B: what was in flight where loss begins, less what was not in the queue.
BufferEstimate EstimateBuffer(absl::Span<const BufferTrial> trials, const OutsideQueue& outside);

}  // namespace sluice
