#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "aggregator/worker_list.h"

namespace boost::asio {
class io_context;
}

namespace sluice {

// Asks the name server for the workers of an open range, one after the other until the first that it does not know, and
// from there again every two seconds. The list only grows: a worker that is restarted has no name for a while, and
// files are striped over its place in the list. One for each list, on the process' IO thread.
class WorkerDiscovery {
 public:
  // All workers of the list, those just found included. Called on the IO thread: after the first look, even where
  // nothing was found, and then whenever there are more.
  using OnWorkers = std::function<void(const std::vector<std::string>& workers)>;
  // `list` has an open range.
  WorkerDiscovery(boost::asio::io_context& context, WorkerList list, OnWorkers on_workers);
  ~WorkerDiscovery();  // after it nothing is called
  WorkerDiscovery(const WorkerDiscovery&) = delete;
  WorkerDiscovery& operator=(const WorkerDiscovery&) = delete;

  // False: the first look takes longer.
  bool AwaitFirstLook(absl::Duration timeout) const;

 private:
  class Loop;
  boost::asio::io_context& context_;
  const std::shared_ptr<Loop> loop_;
};

}  // namespace sluice
