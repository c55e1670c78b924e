#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "sluice/block_reader.h"

#include "absl/status/statusor.h"
#include "aggregator/aggregator_config.h"
#include "aggregator/mid_level.h"
#include "lib/rpc/block_server.h"
#include "lib/rpc/rpc_server.h"
#include "lib/telemetry/admin_server.h"
#include "lib/telemetry/io_thread.h"
#include "lib/telemetry/labelled_metrics.h"
#include "lib/telemetry/process_metrics.h"

namespace sluice {

// A running aggregator: its link, its reader, the gRPC server and the admin server. One a process; thread-safe. The
// IoThread outlives it.
class AggregatorServer {
 public:
  // Connects to the workers first, and logs those that do not answer; serves when it returns. Unavailable: an address
  // cannot be had.
  static absl::StatusOr<std::unique_ptr<AggregatorServer>> Start(const AggregatorOptions& options, IoThread& io_thread);

  const std::string& address() const { return rpc_server_->addresses().front(); }
  std::string admin_address() const { return admin_ ? admin_->address() : ""; }

  // Takes no more reads, lets those under way finish for at most the drain timeout, and cancels what is left.
  void Drain();

 private:
  AggregatorServer(std::shared_ptr<Link> link, std::unique_ptr<BlockReader> reader);
  absl::Status StartAdmin(const AggregatorOptions& options, IoThread& io_thread);
  std::vector<const prometheus::Collectable*> Metrics(const std::string& level);
  absl::Status Health() const;

  const std::shared_ptr<Link> link_;
  const std::unique_ptr<BlockReader> reader_;
  const ProcessMetrics process_metrics_;
  BlockServer service_;
  std::unique_ptr<MidLevel> mid_level_;    // null: it is not one
  std::vector<LabelledMetrics> labelled_;  // with the level; empty: there is none
  std::unique_ptr<RpcServer> rpc_server_;
  std::atomic<bool> draining_ = false;
  std::unique_ptr<AdminServer> admin_;  // answers until the reads have drained
};

}  // namespace sluice
