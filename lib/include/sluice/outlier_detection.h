#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sluice {

// When workers are avoided for a while, because they fail or are much slower than the others: an ejected worker gets no
// call that another worker can answer. Terms and defaults follow Envoy's outlier detection and gRFC A50, except for the
// latency, which they do not have. See docs/internals/ejection.md.
//
// Ejection applies to the workers of one FanOut or BlockReader, and to the addresses of one name that is called through
// a proxy. Only calls that another worker could answer count.
struct OutlierDetection {
  // Ejects a worker that has failed this often in a row, or whose calls were given up this often without a response
  // between them, each after more than two medians of the workers' times; 0: never. Calls that were sent before the
  // last one failed do not count.
  int64_t consecutive_errors = 5;
  // Ejects a worker with this percentage of failures within an interval, 1 to 100; 0: never.
  int64_t failure_percentage_threshold = 85;
  // Ejects a worker whose mean time to a response within an interval is this many times the median of the workers, and
  // at least 10 ms more; above 1, or 0: never.
  double latency_factor = 5;
  // Number of calls to the worker within an interval that the last two rules need, at least 1.
  int64_t request_volume = 50;
  absl::Duration interval = absl::Seconds(10);  // above 0
  // Time of the first ejection, above 0. Each further ejection is longer by this time. Each interval without one makes
  // the next shorter again.
  absl::Duration base_ejection_time = absl::Seconds(30);
  absl::Duration max_ejection_time = absl::Seconds(300);  // above 0
  // Maximum share of the workers that are ejected at a time, 0 to 100. Unless it is 0, one of three or more
  // workers may always be ejected. The last worker never is.
  int64_t max_ejection_percent = 10;

  // Returns InvalidArgument that names the field, the value and the bound.
  absl::Status Validate() const;
};

}  // namespace sluice
