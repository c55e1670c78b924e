#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/worker_fault.h"

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

namespace sluice {

// Tracks the workers at fault, for logs, metrics and the status page; no decision depends on it. A fault begins with
// its first evidence. Evidence that healthy workers also show at times must last for 3 s first. A fault ends after 10 s
// without evidence, so a worker that pauses every 5 s has one long fault. An ejection is known and not inferred, so it
// ends at once. There is one for each link. Not thread-safe. It reads no clock.
class WorkerFaults {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // The evidence against a worker.
  struct Sight {
    std::string_view address;
    bool unreachable = false;
    bool stalled = false;
    bool slow = false;
    bool ejected = false;
    // Since the last look.
    bool hung = false;  // two or more consecutive calls had no response
    bool paused = false;
    bool lossy = false;

    bool any() const { return unreachable || stalled || slow || ejected || hung || paused || lossy; }
  };
  // `workers` may omit workers without evidence. A fault ends at once if its worker leaves the list. Returns the
  // changes.
  std::vector<WorkerFaultChange> Look(TimePoint now, absl::Span<const Sight> workers,
                                      absl::FunctionRef<bool(const std::string& address)> is_wanted);

  // Visits the current faults, by address.
  template <class Visit>
  void ForEach(Visit visit) const {
    for (const auto& [key, fault] : faults_) {
      if (fault.began) visit(key.first, key.second);
    }
  }

 private:
  struct Fault {
    TimePoint since;
    TimePoint last_evidence;
    bool began = false;
  };

  void Take(TimePoint now, std::string_view address, WorkerFault fault, std::vector<WorkerFaultChange>& changes);

  std::map<std::pair<std::string, WorkerFault>, Fault> faults_;
};

}  // namespace sluice
