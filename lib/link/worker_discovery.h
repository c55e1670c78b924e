#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/link/link_metrics.h"
#include "lib/link/worker_list.h"
#include "lib/net/executor.h"
#include "lib/net/timer_queue.h"

namespace sluice {

// Asks the name server every two seconds which workers there are, for a list that leaves it open. It asks for the
// numbered workers of an open range one after the other, up to the first that has no name, and next time from there on.
// The range only grows, since a worker that restarts has no name for a while, and files are striped over its place in
// the list. The members of a name come and go: they are the addresses that the name has at the moment, sorted.
//
// A look-up that fails changes nothing, and neither does a name without an address: a wrong answer of the name server
// is more likely than the end of all members, and calls to members that are gone fail soon.
//
// There is one for each list, used on the link's thread only, where it never blocks. Dropping it ends the look-ups.
class WorkerDiscovery {
 public:
  static constexpr std::chrono::seconds kLookEvery{2};

  struct Options {
    WorkerList list;  // must need look-ups
    // Called with all workers of the list, also the fixed ones: after the first look, even if it found nothing, and
    // then after each look that finds others. It must not drop the discovery.
    std::function<void(std::vector<std::string> workers)> on_workers;
    // Called, before on_workers, when look-ups begin to fail, with the reason, and with OK when they succeed again. May
    // be null.
    std::function<void(const absl::Status&)> on_state;
  };

  // The executor, the timers and the metrics must outlive the discovery.
  WorkerDiscovery(Executor& executor, TimerQueue& timers, LinkMetrics& metrics, Options options);
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
  LinkMetrics& metrics_;
  const Options options_;

  // State of this look.
  size_t next_name_ = 0;
  bool range_done_ = false;
  absl::Status failure_;  // the first one

  std::vector<std::vector<std::string>> members_;  // by name
  uint32_t found_ = 0;                             // number of workers of the open range
  absl::Status told_failure_;
  bool told_ = false;
  std::vector<std::string> told_workers_;
  std::shared_ptr<void> look_up_;
  TimerQueue::Id timer_;
};

}  // namespace sluice
