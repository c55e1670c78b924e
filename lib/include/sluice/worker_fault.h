#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace sluice {

// The fault of a worker. kUnreachable: no connection can be made. kHung: its calls ended at their deadlines,
// without a response. kStalled: granted bytes did not come within the stall timeout. kPaused: granted bytes that were
// ready came late. kLossy: the network lost the last packets of its responses. kSlow: its share of the budget is less
// than a part. kEjected: other workers are preferred, because it fails or does not respond
// (sluice/outlier_detection.h).
enum class WorkerFault { kUnreachable, kHung, kStalled, kPaused, kLossy, kSlow, kEjected };
inline constexpr int kWorkerFaults = 7;
std::string_view WorkerFaultName(WorkerFault fault);  // "unreachable", "hung", ...

// A fault of a worker that begins or has ended.
struct WorkerFaultChange {
  std::string address;
  WorkerFault fault = WorkerFault::kUnreachable;
  bool began = true;
  std::chrono::nanoseconds lasted{0};  // if it has ended
};

}  // namespace sluice
