#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tools/sluice_calibrate/prober.h"

// Pure functions that compute figures from the samples of a calibration. docs/internals/calibration.md derives them.
namespace sluice {

// A figure and its uncertainty. A plain value.
struct Estimate {
  std::optional<double> value;  // none: not determined
  double low = 0;               // lower end of the interval around the value
  double high = 0;
  int64_t samples = 0;
  std::string note;  // why the figure is not determined, or a remark
};

Estimate NotDetermined(std::string why);

// Returns the p-quantile, 0 < p < 1, with its 95 % confidence interval for any distribution. The interval ends at the
// samples whose ranks are two standard deviations of a binomial count away.
Estimate EstimateQuantile(std::vector<double> values, double p);

// Returns the smallest sample, and the largest of the minima of the four quarters of the samples. The latter shows how
// well the minimum repeats.
Estimate EstimateMinimum(absl::Span<const double> values);

// Returns the rate of each window, in bytes per second.
std::vector<double> WindowRates(const LoopSample& loop);

// Estimates C, in bytes per second, from loops that kept the port busy without loss.
Estimate EstimateRate(absl::Span<const LoopSample> loops);

// A loop with `in_flight_bytes` in flight. Loops that did not keep the port busy do not count.
struct BufferTrial {
  int64_t in_flight_bytes = 0;
  int64_t lost_packets = 0;
};

std::vector<BufferTrial> Trials(absl::Span<const LoopSample> loops);

// The part of the bytes in flight that is not in the queue when the queue is fullest. It is the number of bytes that
// the port sends between a response and the next response of the same place in the loop, minus one packet: the packet
// being sent is in the buffer until its end.
struct OutsideQueue {
  double low_bytes = 0;
  double usual_bytes = 0;
  double high_bytes = 0;
};
// Estimates it from the times of the smallest responses, requested one at a time.
OutsideQueue EstimateOutsideQueue(double rate_bytes_per_second, int64_t frame_bytes,
                                  absl::Span<const absl::Duration> answer_times);

struct BufferEstimate {
  Estimate bytes;
  // The bytes in flight at which loss begins.
  double onset_bytes = 0;
  double onset_low_bytes = 0;
  double onset_high_bytes = 0;
};

// Estimates B: the bytes in flight at which loss begins, minus the bytes outside the queue.
BufferEstimate EstimateBuffer(absl::Span<const BufferTrial> trials, const OutsideQueue& outside);

}  // namespace sluice
