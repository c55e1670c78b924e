#include "lib/link/worker_faults.h"

namespace sluice {
namespace {

using std::chrono::seconds;

// A healthy worker may also be slow for a moment or reconnect.
constexpr seconds kLasting{3};
constexpr seconds kOver{10};

seconds BeginsAfter(WorkerFault fault) {
  return fault == WorkerFault::kUnreachable || fault == WorkerFault::kSlow ? kLasting : seconds(0);
}

seconds EndsAfter(WorkerFault fault) {
  return fault == WorkerFault::kEjected ? seconds(0) : kOver;
}

}  // namespace

std::string_view WorkerFaultName(WorkerFault fault) {
  switch (fault) {
    case WorkerFault::kUnreachable:
      return "unreachable";
    case WorkerFault::kHung:
      return "hung";
    case WorkerFault::kStalled:
      return "stalled";
    case WorkerFault::kPaused:
      return "paused";
    case WorkerFault::kLossy:
      return "lossy";
    case WorkerFault::kSlow:
      return "slow";
    case WorkerFault::kEjected:
      return "ejected";
  }
  return "unknown";
}

std::vector<WorkerFaultChange> WorkerFaults::Look(TimePoint now, absl::Span<const Sight> workers,
                                                  absl::FunctionRef<bool(const std::string& address)> is_wanted) {
  std::vector<WorkerFaultChange> changes;
  for (const Sight& worker : workers) {
    if (worker.unreachable) Take(now, worker.address, WorkerFault::kUnreachable, changes);
    if (worker.hung) Take(now, worker.address, WorkerFault::kHung, changes);
    if (worker.stalled) Take(now, worker.address, WorkerFault::kStalled, changes);
    if (worker.paused) Take(now, worker.address, WorkerFault::kPaused, changes);
    if (worker.lossy) Take(now, worker.address, WorkerFault::kLossy, changes);
    if (worker.slow) Take(now, worker.address, WorkerFault::kSlow, changes);
    if (worker.ejected) Take(now, worker.address, WorkerFault::kEjected, changes);
  }
  for (auto next = faults_.begin(); next != faults_.end();) {
    const auto& [key, fault] = *next;
    const bool lasts = fault.last_evidence == now || (fault.began && now - fault.last_evidence < EndsAfter(key.second));
    if (lasts && is_wanted(key.first)) {
      ++next;
      continue;
    }
    if (fault.began) {
      changes.push_back({.address = key.first, .fault = key.second, .began = false, .lasted = now - fault.since});
    }
    next = faults_.erase(next);
  }
  return changes;
}

void WorkerFaults::Take(TimePoint now, std::string_view address, WorkerFault fault,
                        std::vector<WorkerFaultChange>& changes) {
  Fault& taken =
      faults_.try_emplace({std::string(address), fault}, Fault{.since = now, .last_evidence = now}).first->second;
  taken.last_evidence = now;
  if (taken.began || now - taken.since < BeginsAfter(fault)) return;
  taken.began = true;
  changes.push_back({.address = std::string(address), .fault = fault});
}

}  // namespace sluice
