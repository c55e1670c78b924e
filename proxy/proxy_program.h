#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "sluice/link.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/cli/line_log.h"
#include "lib/net/io_thread.h"
#include "lib/proxy/proxy_server.h"
#include "lib/telemetry/admin_server.h"
#include "lib/telemetry/config_metrics.h"
#include "lib/telemetry/process_metrics.h"
#include "lib/telemetry/thread_watch.h"
#include "proxy/proxy_config.h"

namespace sluice {

// A running sluice-proxy: its link, its listeners and the admin server. There is one for each process. Thread-safe. The
// IoThread must outlive it.
class ProxyProgram {
 public:
  // The proxy serves when this returns. Returns the errors of Link::Create, ProxyServer::Start and AdminServer::Start.
  static absl::StatusOr<std::unique_ptr<ProxyProgram>> Start(const ProxyProgramOptions& options, IoThread& io_thread);

  const std::vector<std::string>& addresses() const { return server_->addresses(); }
  std::string admin_address() const { return admin_ ? admin_->address() : ""; }

  // Applies the new link, workers and limits. Returns the errors of Link::Reconfigure and ProxyServer::Reconfigure.
  absl::Status Reconfigure(const ProxyProgramOptions& options);

  // Reports in /readyz that it drains. After the drain delay it refuses new connections and asks clients to reconnect
  // elsewhere. It lets calls end for at most the drain timeout, and ends the rest.
  void Drain();

  ConfigMetrics& config_metrics() { return config_metrics_; }

 private:
  ProxyProgram(std::shared_ptr<Link> link, const ProxyProgramOptions& options);
  absl::Status Ready() const;
  absl::Status OpenAccessLog(const std::string& path, ProxyServer::Options& options);
  absl::Status StartAdmin(const std::string& listen, const std::shared_ptr<PassedSockets>& passed, IoThread& io_thread);

  const std::shared_ptr<Link> link_;
  const absl::Duration drain_timeout_;
  const absl::Duration drain_delay_;
  const ProcessMetrics process_metrics_;
  ConfigMetrics config_metrics_;
  std::unique_ptr<LineLog> access_log_;  // the server uses it
  std::unique_ptr<ProxyServer> server_;
  ThreadWatch threads_;  // on the IO thread
  std::atomic<bool> serving_ = false;
  std::atomic<bool> draining_ = false;
  std::unique_ptr<AdminServer> admin_;
};

}  // namespace sluice
