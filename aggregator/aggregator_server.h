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
#include "lib/storage/serving/block_server.h"
#include "lib/storage/serving/rpc_server.h"
#include "lib/telemetry/admin_server.h"
#include "lib/telemetry/config_metrics.h"
#include "lib/telemetry/labelled_metrics.h"
#include "lib/telemetry/process_metrics.h"

namespace sluice {

// A running aggregator: its link, its reader, the gRPC server and the admin server. There is one for each process.
// Thread-safe. The IoThread must outlive it.
class AggregatorServer {
 public:
  // Connects to the workers first, and logs those that do not answer. The aggregator serves when this returns, and is
  // ready when there is a worker. Returns Unavailable if it cannot listen on an address.
  static absl::StatusOr<std::unique_ptr<AggregatorServer>> Start(const AggregatorOptions& options, IoThread& io_thread);
  ~AggregatorServer();

  const std::string& address() const { return rpc_server_->addresses().front(); }
  std::string admin_address() const { return admin_ ? admin_->address() : ""; }

  // Takes over what may change while it serves: the link, the budget, the workers and how they are read. Reads that are
  // under way end as they began. Call it on the IO thread. Returns the errors of Link::Reconfigure; then nothing has
  // changed.
  absl::Status Reconfigure(const AggregatorOptions& options);

  // Says NOT_SERVING. After the drain delay it takes no more reads, lets those that are under way finish for at most
  // the drain timeout, and cancels the rest.
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
  absl::Status Health() const;

  const std::shared_ptr<Link> link_;
  boost::asio::io_context& io_context_;
  const ProcessMetrics process_metrics_;
  ConfigMetrics config_metrics_;
  CurrentReader reader_;

  // Used on the IO thread only, once workers are followed or the server serves.
  WorkerList worker_list_;
  BlockReader::Options reader_options_;  // of the reader of the moment, but for an empty list: then there is none
  bool serving_ = false;
  uint64_t follows_ = 0;          // of lists that were followed; what an earlier one still tells is old
  absl::Notification looked_up_;  // the first look has ended

  BlockServer service_;
  std::unique_ptr<MidLevel> mid_level_;    // null: it is not one
  std::vector<LabelledMetrics> labelled_;  // with the level; empty: there is none
  std::unique_ptr<RpcServer> rpc_server_;
  std::atomic<bool> draining_ = false;
  std::unique_ptr<AdminServer> admin_;          // answers until the reads have drained
  std::unique_ptr<WorkerDiscovery> discovery_;  // on the link's thread only; null: nothing is looked up
};

}  // namespace sluice
