#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "lib/scheduling/link_schedule.h"

namespace sluice {

// Statistics of past attempts for each worker: its time until a response is ready, and whether the worker is bad. A
// worker is bad if it has failed since its last response. The history orders the workers of an ask accordingly. There
// is one for each FanOut or BlockReader. Not thread-safe.
//
// A bad worker is tried last until a pause is over. Then one attempt may try it: the first Order that puts it first
// treats it as good. The pause is 1 s after the first failure, and doubles up to 30 s with each trial that fails.
class WorkerHistory {
 public:
  // Must be called for a worker before the other functions. Clears its history if its generation has changed, because
  // numbers of removed workers are used again. See WorkerTable.
  void Use(size_t worker, uint64_t generation);

  // `time_to_ready` is the time from the request until the response was ready.
  void OnReady(TimePoint now, size_t worker, absl::Duration time_to_ready);
  void OnResponse(TimePoint now, size_t worker);
  // Do not call it for responses that were not needed.
  void OnFailed(TimePoint now, size_t worker);

  bool Bad(TimePoint now, size_t worker) const;
  std::optional<absl::Duration> TimeToReady(size_t worker) const;  // moving mean; empty before the first response

  // Returns the workers in the order in which they are tried. The first worker stays first unless it is bad. The others
  // follow by their time to ready; an unknown time counts as the mean of the known times. Bad workers come last,
  // ordered by the end of their pause. Behind them are the ejected workers, in the same order. Equals keep their order.
  std::vector<size_t> Order(TimePoint now, std::vector<size_t> workers,
                            absl::FunctionRef<bool(size_t worker)> is_ejected = &IsNever);

 private:
  static bool IsNever(size_t /*worker*/) { return false; }

  struct Worker {
    uint64_t generation = 0;
    std::optional<absl::Duration> time_to_ready;
    absl::Duration pause;   // 0 if the worker is good
    TimePoint bad_until;    // valid with a pause
    bool on_trial = false;  // an Order has put it first since the pause was over
  };

  std::vector<Worker> workers_;
};

}  // namespace sluice
