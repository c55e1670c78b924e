#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tools/sluice_calibrate/prober.h"

// What the samples of a calibration say: pure functions. docs/calibration.md derives them.
namespace sluice {

// One figure, and how far to trust it. A plain value.
struct Estimate {
  std::optional<double> value;  // none: not determined
  double low = 0;               // of the interval around it
  double high = 0;
  int64_t samples = 0;
  std::string note;  // why it is not determined, or what to know of it
};

Estimate NotDetermined(std::string why);

// The p-quantile, 0 < p < 1, with the interval that holds it at 95 %, whatever the distribution: the samples whose
// ranks are two standard deviations of a binomial count away.
Estimate EstimateQuantile(std::vector<double> values, double p);

// The least of all, and the largest of the least of each quarter of the samples: how well it repeats.
Estimate EstimateMinimum(absl::Span<const double> values);

// C, in bytes per second, from loops that kept the port busy and lost nothing.
Estimate EstimateRate(absl::Span<const LoopSample> loops);

// One loop that had so much in flight. Loops that did not keep the port busy are none.
struct BufferTrial {
  int64_t in_flight_bytes = 0;
  int64_t lost_packets = 0;
};

struct BufferEstimate {
  Estimate bytes;
  double onset_bytes = 0;  // in flight where loss begins; 0: nowhere
};

// B: what was in flight where loss begins, less what was not in the queue: what the port sends in the shortest time
// from an answer to the next one. `between_answers` are the times of the smallest answers.
BufferEstimate EstimateBuffer(absl::Span<const BufferTrial> trials, double rate_bytes_per_second,
                              absl::Span<const absl::Duration> between_answers);

// What the port sends in the shortest time between two answers of one place in the loop.
double BytesOutsideQueue(double rate_bytes_per_second, absl::Span<const absl::Duration> between_answers);

}  // namespace sluice
