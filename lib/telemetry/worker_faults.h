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

#include "absl/types/span.h"

namespace sluice {

// Which workers of a link are at fault, for logs, metrics and the status page; no decision depends on it. A fault
// begins with its first evidence, or after evidence for 3 s if a healthy worker has some now and then. It ends after
// 10 s without evidence, so that a worker which pauses every 5 s has one long fault. There is one for each link. Not
// thread-safe. It reads no clock.
class WorkerFaults {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A worker that is wanted, at one moment.
  struct Sight {
    std::string_view address;
    bool unreachable = false;
    bool stalled = false;
    bool slow = false;
    // Since the start.
    int64_t hung = 0;  // calls without a response after another one
    int64_t pauses = 0;
    int64_t silent_losses = 0;
  };
  // Takes all workers that are wanted. The faults of others have ended. Returns what has changed.
  std::vector<WorkerFaultChange> Look(TimePoint now, absl::Span<const Sight> workers);

  // Those that are under way, by address.
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
  struct Counts {
    int64_t hung = 0;
    int64_t pauses = 0;
    int64_t silent_losses = 0;
    uint64_t look = 0;  // that saw the worker last
  };

  void Take(TimePoint now, std::string_view address, WorkerFault fault, std::vector<WorkerFaultChange>& changes);

  std::map<std::pair<std::string, WorkerFault>, Fault> faults_;
  std::map<std::string, Counts, std::less<>> counts_;
  uint64_t looks_ = 0;
};

}  // namespace sluice
