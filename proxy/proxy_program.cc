#include "proxy/proxy_program.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "lib/cli/descriptor_limit.h"
#include "lib/cli/line_log.h"
#include "lib/cli/link_log.h"
#include "lib/cli/log_limit.h"
#include "lib/cli/logging.h"
#include "lib/link/link_pages.h"
#include "lib/net/clock.h"
#include "lib/proxy/access_record.h"
#include "lib/proxy/client_opening.h"
#include "lib/proxy/proxy_event.h"
#include "lib/telemetry/metric_families.h"

namespace sluice {
namespace {

// Anyone who can reach the port can cause these events. A client that is refused tries again after seconds; one that
// uses TLS stays.
constexpr std::chrono::seconds kLogHandshakeEvery{1};
constexpr std::chrono::minutes kLogRefusalEvery{1};
constexpr std::chrono::hours kLogTunnelEvery{1};
constexpr size_t kMaxLoggedTargets = 100;

// The log of what clients do. Used on the link's thread only.
class ClientLog {
 public:
  void OnEvent(const ProxyEvent& event) {
    switch (event.kind) {
      case ProxyEvent::Kind::kHandshakeFailed:
        if (const auto unlogged = handshakes_.Take("", std::chrono::steady_clock::now())) {
          Log(LogLevel::kWarning, "a client's TLS handshake has failed",
              {{"client", event.client}, {"reason", event.why}, {"unlogged", *unlogged}});
        }
        return;
      case ProxyEvent::Kind::kRefused:
        if (const auto unlogged = refusals_.Take(event.target + " " + event.why, std::chrono::steady_clock::now())) {
          Log(LogLevel::kWarning, "a client was refused",
              {{"client", event.client}, {"target", event.target}, {"reason", event.why}, {"unlogged", *unlogged}});
        }
        return;
      case ProxyEvent::Kind::kWorkerTunnel:
        return LogTunnel(LogLevel::kWarning, "a tunnel to a worker is not scheduled", event);
      case ProxyEvent::Kind::kOtherTunnel:
        // HTTPS to another host is no surprise; plaintext HTTP/2 is probably gRPC.
        return LogTunnel(event.carries == ClientOpening::kPlaintextHttp2 ? LogLevel::kWarning : LogLevel::kInfo,
                         "a tunnel to a host that is not a worker is not scheduled", event);
    }
  }

 private:
  void LogTunnel(LogLevel level, std::string_view message, const ProxyEvent& event) {
    if (const auto unlogged = tunnels_.Take(event.target, std::chrono::steady_clock::now())) {
      Log(level, message,
          {{"client", event.client},
           {"target", event.target},
           {"carries", event.carries},
           {"reason", event.why},
           {"unlogged", *unlogged}});
    }
  }

  LogLimit handshakes_{kLogHandshakeEvery, 1};
  LogLimit refusals_{kLogRefusalEvery, kMaxLoggedTargets};
  LogLimit tunnels_{kLogTunnelEvery, kMaxLoggedTargets};
};

void LogListenerTls(const absl::Status& state) {
  if (state.ok()) return Log(LogLevel::kInfo, "new files of listener_tls are in force");
  Log(LogLevel::kError, "files of listener_tls have changed and are not taken; the last good ones stay in force",
      {{"reason", state}});
}

void WarnOfFewDescriptors(const ProxyProgramOptions& options, uint64_t descriptors) {
  const absl::Status enough = CheckDescriptorLimit(options.server.proxy.max_connections, descriptors);
  if (!enough.ok()) {
    Log(LogLevel::kWarning, "clients may take the file descriptors that connections to workers need",
        {{"reason", enough}});
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProxyProgram>> ProxyProgram::Start(const ProxyProgramOptions& options,
                                                                  IoThread& io_thread) {
  WarnOfFewDescriptors(options, RaiseDescriptorLimit());
  auto link = CreateLoggedLink(options.link);
  if (!link.ok()) return link.status();
  std::unique_ptr<ProxyProgram> program(new ProxyProgram(*std::move(link), options));
  if (absl::Status admin = program->StartAdmin(options.admin, options.server.passed, io_thread); !admin.ok()) {
    return admin;
  }
  ProxyServer::Options logged = options.server;
  logged.on_event = [log = std::make_shared<ClientLog>()](const ProxyEvent& event) { log->OnEvent(event); };
  logged.on_listener_tls = LogListenerTls;
  logged.admin = program->admin_address();
  if (absl::Status opened = program->OpenAccessLog(options.access_log, logged); !opened.ok()) return opened;
  auto server = ProxyServer::Start(program->link_, std::move(logged));
  if (!server.ok()) return server.status();
  program->server_ = *std::move(server);
  program->serving_ = true;
  return program;
}

ProxyProgram::ProxyProgram(std::shared_ptr<Link> link, const ProxyProgramOptions& options)
    : link_(std::move(link)),
      drain_timeout_(options.drain_timeout),
      drain_delay_(options.drain_delay),
      config_metrics_(link_->registry()) {
  threads_.Add("thread of the link", LinkThread(*link_));
}

absl::Status ProxyProgram::StartAdmin(const std::string& listen, const std::shared_ptr<PassedSockets>& passed,
                                      IoThread& io_thread) {
  if (listen.empty()) return absl::OkStatus();
  auto admin = AdminServer::Start(io_thread.context(),
                                  {.listen = listen,
                                   .field = "admin",
                                   .name = "sluice-proxy",
                                   .collectables = {&link_->registry(), &link_->gauges(), &process_metrics_},
                                   .live = [this] { return threads_.Look(Now()); },
                                   .ready = [this] { return Ready(); },
                                   .pages = LinkPages(*link_),
                                   .passed = passed});
  if (!admin.ok()) return admin.status();
  admin_ = *std::move(admin);
  return absl::OkStatus();
}

absl::Status ProxyProgram::OpenAccessLog(const std::string& path, ProxyServer::Options& options) {
  if (path.empty()) return absl::OkStatus();
  prometheus::Counter& lost =
      MakeCounter(link_->registry(), "sluice_proxy_access_log_lost_total",
                  "Lines of the access log that were lost, because its file or pipe took them too slowly.");
  auto opened = LineLog::Open(path, [&lost](int64_t lines) { lost.Increment(static_cast<double>(lines)); });
  if (!opened.ok()) {
    return absl::Status(opened.status().code(), absl::StrCat("access_log.file: ", opened.status().message()));
  }
  access_log_ = *std::move(opened);
  options.on_access = [log = access_log_.get()](const AccessRecord& record) {
    log->Add(AccessLine(record, absl::Now()));
  };
  return absl::OkStatus();
}

absl::Status ProxyProgram::Ready() const {
  if (draining_) return absl::UnavailableError("draining");
  return serving_ ? absl::OkStatus() : absl::UnavailableError("not listening yet");
}

absl::Status ProxyProgram::Reconfigure(const ProxyProgramOptions& options) {
  if (absl::Status changed = link_->Reconfigure(options.link); !changed.ok()) return changed;
  absl::Status changed = server_->Reconfigure(options.server);
  if (changed.ok()) WarnOfFewDescriptors(options, RaiseDescriptorLimit());
  return changed;
}

void ProxyProgram::Drain() {
  draining_ = true;
  // Sleep for the drain delay, so that clients see /readyz. The notification never comes.
  absl::Notification().WaitForNotificationWithTimeout(drain_delay_);
  const size_t calls = server_->Drain(drain_timeout_);
  if (calls > 0) Log(LogLevel::kWarning, "calls are ended that did not end by themselves", {{"calls", calls}});
  server_.reset();
}

}  // namespace sluice
