#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace sluice {

// What an aggregator knows of one of its workers. Times are means over recent answers, and infinite if not known yet.
struct WorkerSummary {
  std::string address;
  int64_t answers = 0;
  absl::Duration ready;     // from the request until the answer is ready
  absl::Duration transfer;  // from the first grant, or the request it left with, until the answer has come
  absl::Duration rtt;
  int64_t losses = 0;
  int64_t rtos = 0;       // TCP retransmission timeouts
  int64_t in_flight = 0;  // calls that were sent and have not ended
  std::vector<std::string> faults;
};

// Returns {"workers": [{"address": "10.0.0.1:20000", "answers": 123, "ready_seconds": 0.001, ...}], "total": 64}: of
// `total` workers the 20 worst: first those at fault, then those whose answers take longest, the slowest first. A time
// that is not known is left out, and counts as 0. Keys are in no particular order.
std::string WorstWorkersJson(std::vector<WorkerSummary> workers);

}  // namespace sluice
