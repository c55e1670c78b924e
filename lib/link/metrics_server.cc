#include "sluice/metrics_server.h"

#include <utility>

#include "lib/link/link_pages.h"
#include "lib/net/clock.h"
#include "lib/net/io_thread.h"
#include "lib/telemetry/admin_server.h"
#include "lib/telemetry/process_metrics.h"
#include "lib/telemetry/thread_watch.h"

namespace sluice {

// In the order of their dependencies: the admin server ends first.
struct MetricsServer::Parts {
  std::shared_ptr<Link> link;
  ProcessMetrics process_metrics;
  ThreadWatch threads;
  IoThread io_thread;
  std::unique_ptr<AdminServer> admin;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(std::shared_ptr<Link> link,
                                                                    const std::string& listen) {
  if (!link) return absl::InvalidArgumentError("link is null; create one with Link::Create");
  auto parts = std::make_unique<Parts>();
  parts->link = std::move(link);
  parts->threads.Add("thread of the link", LinkThread(*parts->link));
  auto admin =
      AdminServer::Start(parts->io_thread.context(),
                         {.listen = listen,
                          .name = "sluice",
                          .collectables = {&parts->link->registry(), &parts->link->gauges(), &parts->process_metrics},
                          .live = [watch = &parts->threads] { return watch->Look(Now()); },
                          .pages = LinkPages(*parts->link)});
  if (!admin.ok()) return admin.status();
  parts->admin = *std::move(admin);
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(parts)));
}

MetricsServer::MetricsServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

MetricsServer::~MetricsServer() = default;

const std::string& MetricsServer::address() const {
  return parts_->admin->address();
}

}  // namespace sluice
