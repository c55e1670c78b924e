#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "sluice/link_schedule.h"

#include "absl/time/time.h"

namespace sluice {

// What the attempts of the past say about each worker: how long it takes to be ready, and whether it is bad, which is
// that it has failed since it answered last. Orders the workers of an ask accordingly. One for each FanOut or
// BlockReader. Not thread-safe.
//
// A bad worker comes last until a pause is over. Then one attempt may try it: it is good for the first Order that puts
// it first. The pause is 1 s after the first failure, and doubles up to 30 s with each trial that fails.
class WorkerHistory {
 public:
  explicit WorkerHistory(size_t workers) : workers_(workers) {}

  size_t workers() const { return workers_.size(); }
  void Resize(size_t workers);  // at least as many as before

  // `time_to_ready`: from the request until its answer was ready to come.
  void OnReady(TimePoint now, size_t worker, absl::Duration time_to_ready);
  void OnAnswered(TimePoint now, size_t worker);
  // Not for answers that nobody needed any more.
  void OnFailed(TimePoint now, size_t worker);

  bool Bad(TimePoint now, size_t worker) const;
  std::optional<absl::Duration> TimeToReady(size_t worker) const;  // moving mean; nothing before the first

  // In the order in which they are to be tried. The first one stays first unless it is bad; the others come by their
  // time to ready, where one that is unknown counts as the mean of those that are known; bad ones come last, those
  // whose pause ends first before the others. Equals keep their order.
  std::vector<size_t> Order(TimePoint now, std::vector<size_t> workers);

 private:
  struct Worker {
    std::optional<absl::Duration> time_to_ready;
    absl::Duration pause;   // 0: it is good
    TimePoint bad_until;    // with a pause
    bool on_trial = false;  // an Order has put it first since the pause was over
  };

  std::vector<Worker> workers_;
};

}  // namespace sluice
