#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace sluice {

// What an aggregator knows of one of its workers. Times are means over recent answers; infinite where not known yet.
struct WorkerSummary {
  std::string address;
  int64_t answers = 0;
  absl::Duration ready;     // from the request until the answer is ready
  absl::Duration transfer;  // from the grant, or the request where none is needed, until the answer has come
  absl::Duration rtt;
  int64_t losses = 0;
  int64_t rtos = 0;  // TCP retransmission timeouts
  int64_t in_flight = 0;
};

// {"workers": [{"address": "10.0.0.1:20000", "answers": 123, "ready_seconds": 0.001, ...}], "total": 64}: the 20
// workers whose answers take longest, the slowest first, of `total`. A time that is not known is left out, and counts
// as none. Keys are in no particular order.
std::string SlowestWorkersJson(std::vector<WorkerSummary> workers);

}  // namespace sluice
