#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sluice/block_reader.h"

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "aggregator/aggregator_config.h"
#include "aggregator/current_reader.h"
#include "aggregator/mid_level.h"
#include "lib/link/worker_discovery.h"
#include "lib/net/io_thread.h"
#include "lib/storage/serving/access_control.h"
#include "lib/storage/serving/block_server.h"
#include "lib/storage/serving/rpc_server.h"
#include "lib/telemetry/admin_server.h"
#include "lib/telemetry/config_metrics.h"
#include "lib/telemetry/labelled_metrics.h"
#include "lib/telemetry/process_metrics.h"
#include "lib/telemetry/thread_watch.h"

namespace sluice {

// A running aggregator: its link, its reader, the gRPC server and the admin server. There is one for each process.
// Thread-safe. The IoThread must outlive it.
class AggregatorServer {
 public:
  // Connects to the workers first, and logs the unreachable ones. The aggregator serves when this returns, and is ready
  // when it has a worker. Returns Unavailable if it cannot listen on an address.
  static absl::StatusOr<std::unique_ptr<AggregatorServer>> Start(const AggregatorOptions& options, IoThread& io_thread);
  ~AggregatorServer();

  const std::string& address() const { return rpc_server_->addresses().front(); }
  std::string admin_address() const { return admin_ ? admin_->address() : ""; }

  // Applies the options that may change at runtime: the link, the budget, the workers and the options for reading from
  // them. Reads in progress keep their old options. Call it on the IO thread. Returns the errors of Link::Reconfigure;
  // then nothing has changed.
  absl::Status Reconfigure(const AggregatorOptions& options);

  // Reports NOT_SERVING. After the drain delay it refuses new reads, lets current reads finish for at most the drain
  // timeout, and cancels the rest.
  void Drain();

  ConfigMetrics& config_metrics() { return config_metrics_; }

 private:
  AggregatorServer(std::shared_ptr<Link> link, const AggregatorOptions& options, IoThread& io_thread);
  absl::Status StartAdmin(const AggregatorOptions& options, IoThread& io_thread);
  std::vector<const prometheus::Collectable*> Metrics(const std::string& level);
  absl::Status StartServing(const AggregatorOptions& options);
  void FindWorkers(const AggregatorOptions& options);
  void FollowWorkers();
  void StopFollowing();
  void SetWorkers(const std::vector<std::string>& workers);
  void MakeReader();
  absl::Status Live();
  absl::Status Ready() const;

  const std::shared_ptr<Link> link_;
  boost::asio::io_context& io_context_;
  const ProcessMetrics process_metrics_;
  ConfigMetrics config_metrics_;
  CurrentReader reader_;

  // Used on the IO thread only, once workers are followed or the server serves.
  WorkerList worker_list_;
  BlockReader::Options reader_options_;  // options of the current reader; without workers there is no reader
  bool serving_ = false;
  uint64_t follows_ = 0;          // number of the followed list; updates from earlier lists are ignored
  absl::Notification looked_up_;  // the first look has ended

  const std::shared_ptr<AccessControl> access_;
  BlockServer service_;
  std::unique_ptr<MidLevel> mid_level_;    // null: it is not a mid-level aggregator
  std::vector<LabelledMetrics> labelled_;  // with the level; empty without a level
  std::unique_ptr<RpcServer> rpc_server_;
  ThreadWatch threads_;
  std::atomic<bool> draining_ = false;
  std::unique_ptr<AdminServer> admin_;          // serves until the reads have drained
  std::unique_ptr<WorkerDiscovery> discovery_;  // on the link's thread only; null: there are no look-ups
};

}  // namespace sluice
