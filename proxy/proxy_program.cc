#include "proxy/proxy_program.h"

#include <utility>

#include "absl/synchronization/notification.h"
#include "lib/cli/link_log.h"
#include "lib/cli/logging.h"
#include "lib/telemetry/metric_families.h"
#include "lib/telemetry/status_page.h"
#include "lib/telemetry/worker_summary.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<ProxyProgram>> ProxyProgram::Start(const ProxyProgramOptions& options,
                                                                  IoThread& io_thread) {
  auto link = CreateLoggedLink(options.link);
  if (!link.ok()) return link.status();
  std::unique_ptr<ProxyProgram> program(new ProxyProgram(*std::move(link), options));
  if (absl::Status admin = program->StartAdmin(options.admin, io_thread); !admin.ok()) return admin;
  auto server = ProxyServer::Start(program->link_, options.server);
  if (!server.ok()) return server.status();
  program->server_ = *std::move(server);
  return program;
}

ProxyProgram::ProxyProgram(std::shared_ptr<Link> link, const ProxyProgramOptions& options)
    : link_(std::move(link)),
      drain_timeout_(options.drain_timeout),
      drain_delay_(options.drain_delay),
      config_metrics_(link_->registry()) {}

absl::Status ProxyProgram::StartAdmin(const std::string& listen, IoThread& io_thread) {
  if (listen.empty()) return absl::OkStatus();
  const AdminServer::Page workers = {.content_type = "application/json",
                                     .body = [this] { return SlowestWorkersJson(link_->WorkerSummaries()); }};
  auto admin = AdminServer::Start(
      io_thread.context(),
      {.listen = listen,
       .name = "sluice-proxy",
       .collectables = {&link_->registry(), &link_->gauges(), &process_metrics_},
       .health = [this] { return draining_ ? absl::UnavailableError("draining") : absl::OkStatus(); },
       .pages = {{"/", StatusPage()}, {"/workers.json", workers}}});
  if (!admin.ok()) return admin.status();
  admin_ = *std::move(admin);
  return absl::OkStatus();
}

absl::Status ProxyProgram::Reconfigure(const ProxyProgramOptions& options) {
  if (absl::Status changed = link_->Reconfigure(options.link); !changed.ok()) return changed;
  return server_->Reconfigure(options.server);
}

void ProxyProgram::Drain() {
  draining_ = true;
  // Nobody notifies: clients are given the time to look at /healthz.
  absl::Notification().WaitForNotificationWithTimeout(drain_delay_);
  const size_t calls = server_->Drain(drain_timeout_);
  if (calls > 0) Log(LogLevel::kWarning, "calls are ended that did not end by themselves", {{"calls", calls}});
  server_.reset();
}

}  // namespace sluice
