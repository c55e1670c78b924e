#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sluice {

// When workers are avoided for a while, because they fail or do not respond: an ejected worker gets no call that
// another worker can answer. Terms and defaults follow Envoy's outlier detection and gRFC A50, except for calls without
// a response and for the latency, which they do not have. See docs/internals/ejection.md.
//
// Ejection applies to the workers of one FanOut or BlockReader, and to the addresses of one name that is called through
// a proxy. Only calls that another worker could answer count. A worker is compared with the other workers by calls of
// the same method: a method that fails or is slow at all workers ejects none.
struct OutlierDetection {
  // Ejects a worker that has failed this often in a row, or whose calls were given up this often without a response
  // between them, each after more than two medians of the other workers' times; 0: never. A failure counts if another
  // worker has answered since the one before. Calls that were sent before the last one failed do not count. If other
  // workers fail too, or have answered few calls, more failures are needed.
  int64_t consecutive_errors = 5;
  // Ejects a worker with this percentage of failures and given-up calls within an interval, 1 to 100, if the others
  // have less than half of it; 0: never.
  int64_t failure_percentage_threshold = 85;
  // Ejects a worker whose mean time to a response within an interval is this many times the median of the others, and
  // at least 10 ms more; above 1, or 0: never. Use it only if the calls of each method are alike: a worker that got
  // the heavy calls is slower than others.
  double latency_factor = 0;
  // Number of calls of one method to the worker within an interval that the last two rules need, at least 1.
  int64_t request_volume = 50;
  absl::Duration interval = absl::Seconds(10);  // above 0
  // Time of the first ejection, above 0. Each further ejection is longer by this time. Each interval without one makes
  // the next shorter again.
  absl::Duration base_ejection_time = absl::Seconds(30);
  absl::Duration max_ejection_time = absl::Seconds(300);  // above 0
  // Maximum share of the workers that are ejected at a time, 0 to 100. Unless it is 0, one of two or more workers may
  // always be ejected. The last worker never is.
  int64_t max_ejection_percent = 10;

  // Returns InvalidArgument that names the field, the value and the bound.
  absl::Status Validate() const;
};

}  // namespace sluice
