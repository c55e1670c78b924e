#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace sluice {

// The measurements of one worker by this process. Times are means over recent responses, and infinite if unknown.
struct WorkerSummary {
  std::string address;
  int64_t responses = 0;
  absl::Duration ready;     // from the request until the response is ready
  absl::Duration transfer;  // from the first grant, or the request if it carried one, until the response has arrived
  absl::Duration rtt;
  int64_t losses = 0;
  int64_t rtos = 0;       // TCP retransmission timeouts
  int64_t in_flight = 0;  // calls that were sent and have not ended
  std::vector<std::string> faults;
};

// Returns {"workers": [{"address": "10.0.0.1:20000", "responses": 123, "ready_seconds": 0.001, ...}], "total": 64} with
// the 20 worst of `total` workers. Workers at fault come first, then the workers with the slowest responses. An unknown
// time is left out, and counts as 0. Keys are in no particular order.
std::string WorstWorkersJson(std::vector<WorkerSummary> workers);

}  // namespace sluice
