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

// Queries the name server every two seconds for the workers of a list that does not determine them. For an open range,
// it queries the numbered workers one after the other until a worker has no name; the next look continues there. The
// range only grows: a restarting worker has no name for a while, and files are striped over its place in the list. The
// members of a name come and go: they are the current addresses of the name, sorted.
//
// A failed look-up changes nothing, and neither does a name without an address. A wrong response of the name server is
// more likely than the end of all members, and calls to removed members fail soon.
//
// There is one for each list, used on the link's thread only, which it never blocks. Destroying it ends the look-ups.
class WorkerDiscovery {
 public:
  static constexpr std::chrono::seconds kLookEvery{2};

  struct Options {
    WorkerList list;  // must need look-ups
    // Called with all workers of the list, including the fixed ones. The first call follows the first look, even if it
    // found nothing; later calls follow each look that finds different workers. It must not destroy the discovery.
    std::function<void(std::vector<std::string> workers)> on_workers;
    // Called before on_workers: with the reason when look-ups begin to fail, and with OK when they succeed again. May
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

  // State of the current look.
  size_t next_name_ = 0;
  bool range_done_ = false;
  absl::Status failure_;  // the first failure

  std::vector<std::vector<std::string>> members_;  // by name
  uint32_t found_ = 0;                             // number of workers of the open range
  absl::Status told_failure_;
  bool told_ = false;
  std::vector<std::string> told_workers_;
  std::shared_ptr<void> look_up_;
  TimerQueue::Id timer_;
};

}  // namespace sluice
