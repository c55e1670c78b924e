#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/net/io_thread.h"
#include "lib/storage/serving/access_control.h"
#include "lib/storage/serving/answer_watch.h"
#include "lib/storage/serving/data_check.h"
#include "lib/storage/serving/probe_server.h"
#include "lib/storage/serving/rpc_server.h"
#include "lib/storage/serving/sru_server.h"
#include "lib/storage/serving/worker_metrics.h"
#include "lib/storage/stripe/stripe_store.h"
#include "lib/telemetry/admin_server.h"
#include "lib/telemetry/process_metrics.h"
#include "lib/telemetry/thread_watch.h"
#include "prometheus/registry.h"
#include "worker/worker_config.h"

namespace sluice {

// A running worker: the stripes, the gRPC server on all of its addresses, and the admin server. There is one for each
// process. Thread-safe. The IoThread must outlive it.
class WorkerServer {
 public:
  // The worker serves when this returns. Returns the errors of StripeStore::Open, RpcServer::Start and
  // AdminServer::Start.
  static absl::StatusOr<std::unique_ptr<WorkerServer>> Start(const WorkerOptions& options, IoThread& io_thread);

  // The given addresses, with the real port instead of port 0.
  const std::vector<std::string>& addresses() const { return rpc_server_->addresses(); }
  std::string admin_address() const { return admin_ ? admin_->address() : ""; }
  const StripeStore& store() const { return store_; }

  // Refuses new calls and lets current calls finish, for at most the drain timeout; /readyz reports "draining". No
  // call is in progress when it returns.
  void Drain();

 private:
  WorkerServer(const WorkerOptions& options, StripeStore store, IoThread& io_thread);
  absl::Status StartAdmin(const WorkerOptions& options, IoThread& io_thread);
  absl::Status Live();
  absl::Status Ready();

  const StripeStore store_;
  DataCheck data_check_;
  prometheus::Registry registry_;
  const ProcessMetrics process_metrics_;
  WorkerMetrics metrics_;
  const std::shared_ptr<AccessControl> access_;
  AnswerWatch answer_watch_;
  SruServer sru_service_;
  ProbeServer probe_service_;
  std::atomic<bool> draining_ = false;
  ThreadWatch threads_;                    // on the IO thread
  std::unique_ptr<RpcServer> rpc_server_;  // after the services, so that its calls end before the objects that they use
  std::atomic<bool> serving_ = false;      // rpc_server_ is set
  std::unique_ptr<AdminServer> admin_;
};

}  // namespace sluice
