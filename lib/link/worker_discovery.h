#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/link/executor.h"
#include "lib/link/timer_queue.h"
#include "lib/link/worker_list.h"
#include "lib/telemetry/aggregator_metrics.h"

namespace sluice {

// Asks the name server every two seconds which workers there are, for a list that leaves it open. The numbered workers
// of an open range are asked for one after the other, until the first that has no name, and from there again: the range
// only grows, since a worker that is restarted has no name for a while, and files are striped over its place in the
// list. The members of a name come and go: they are the addresses that it has at the moment, sorted.
//
// A look-up that fails changes nothing. Nor does a name that has no address: it is rather the name server that is wrong
// than that all members are gone, and those who ask them find out.
//
// One for each list; for the link's thread only, on which it waits for nothing. Dropping it ends the looks.
class WorkerDiscovery {
 public:
  static constexpr std::chrono::seconds kLookEvery{2};

  struct Options {
    WorkerList list;  // that needs look-ups
    // Called with all workers of the list, the fixed ones included: after the first look, even where nothing was found,
    // and then after each that finds others. Do not drop the discovery in it.
    std::function<void(std::vector<std::string> workers)> on_workers;
    // Called when it changes whether look-ups fail, and before on_workers: why they do, or OK. May be null.
    std::function<void(const absl::Status&)> on_state;
  };

  // All of these outlive it.
  WorkerDiscovery(Executor& executor, TimerQueue& timers, AggregatorMetrics& metrics, Options options);
  ~WorkerDiscovery();
  WorkerDiscovery(const WorkerDiscovery&) = delete;
  WorkerDiscovery& operator=(const WorkerDiscovery&) = delete;

 private:
  using Answer = absl::StatusOr<std::vector<WorkerAddress>>;

  void LookUpNext();
  void OnName(const Answer& answer);
  void OnNumbered(const Answer& answer);
  void NoteFailure(const std::string& entry, const absl::Status& why);
  void EndLook();

  Executor& executor_;
  TimerQueue& timers_;
  AggregatorMetrics& metrics_;
  const Options options_;

  // Of this look.
  size_t next_name_ = 0;
  bool range_done_ = false;
  absl::Status failure_;  // the first one

  std::vector<std::vector<std::string>> members_;  // by name
  uint32_t found_ = 0;                             // of the open range
  absl::Status told_failure_;
  bool told_ = false;
  std::vector<std::string> told_workers_;
  std::shared_ptr<void> look_up_;
  TimerQueue::Id timer_;
};

}  // namespace sluice
