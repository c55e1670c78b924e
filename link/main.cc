#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sluice/plan.h"
#include "sluice/v1/config.pb.h"

#include "lib/cli/config_flags.h"
#include "lib/cli/link_log.h"
#include "lib/cli/logging.h"
#include "lib/cli/program.h"
#include "lib/cli/ready_file.h"
#include "lib/cli/termination_signal.h"
#include "lib/cli/units.h"
#include "lib/net/io_thread.h"
#include "lib/net/passed_sockets.h"
#include "lib/sharing/lease_server.h"
#include "lib/telemetry/admin_server.h"
#include "lib/telemetry/process_metrics.h"
#include "link/link_daemon_config.h"

namespace sluice {
namespace {

void LogEvent(const SharingEvent& event) {
  const bool refused = event.kind == SharingEvent::Kind::kRefused;
  const bool trouble = refused || event.kind == SharingEvent::Kind::kExpired;
  Log(trouble ? LogLevel::kWarning : LogLevel::kInfo, "process",
      {{"event", SharingEventName(event.kind)},
       {"application", event.application},
       {"weight", event.weight},
       {"pid", event.pid},
       {"uid", event.uid},
       {"reason", event.reason}});
}

class LinkDaemon {
 public:
  google::protobuf::Message& config() { return config_; }

  void AddFlags(CLI::App& app) {
    ConfigFlags(config_).AddTo(app);
    AddReadyFileFlag(app, ready_file_);
  }

  absl::Status Configure() {
    if (absl::Status status = SetLogLevel(config_.log_level()); !status.ok()) return status;
    absl::StatusOr<LinkDaemonOptions> options = ParseLinkDaemonConfig(config_);
    if (!options.ok()) return options.status();
    options_ = *std::move(options);
    options_.server.on_event = LogEvent;
    options_.server.on_invariant_breach = BreachLog();
    return absl::OkStatus();
  }

  absl::Status Check() const {
    Warn();
    return CheckReadyFile(ready_file_);
  }

  absl::Status Run() {
    auto passed = PassedSockets::FromEnvironment();
    if (!passed.ok()) return passed.status();
    const absl::Status matches =
        (*passed)->Check({{"socket (ListenSequentialPacket=)", "unix:" + options_.server.socket, SOCK_SEQPACKET},
                          {"admin (ListenStream=)", options_.admin}});
    if (!matches.ok()) return matches;
    options_.server.passed = *std::move(passed);
    IoThread io_thread;
    TerminationSignal termination(io_thread.context());
    prometheus::Registry registry;
    const ProcessMetrics process_metrics;
    const absl::StatusOr<std::unique_ptr<LeaseServer>> server =
        LeaseServer::Start(io_thread.context(), options_.server, registry);
    if (!server.ok()) return server.status();
    std::vector<std::string> addresses{options_.server.socket};
    std::unique_ptr<AdminServer> admin;
    if (!options_.admin.empty()) {
      auto started =
          AdminServer::Start(io_thread.context(), {.listen = options_.admin,
                                                   .field = "admin",
                                                   .name = "sluice-link",
                                                   .collectables = {&registry, server->get(), &process_metrics},
                                                   .passed = options_.server.passed});
      if (!started.ok()) return started.status();
      admin = *std::move(started);
      addresses.push_back(admin->address());
    }
    LogServing(admin ? admin->address() : "");
    Warn();
    if (absl::Status ready = WriteReadyFile(ready_file_, addresses); !ready.ok()) return ready;
    const int signal = termination.Wait();
    Log(LogLevel::kInfo, "stopping", {{"signal", signal}});
    return absl::OkStatus();
  }

 private:
  void Warn() const {
    if (config_.link().buffer().empty()) return;
    WarnOfLargeBudget(options_.server.shares.budget_bytes, BufferBudgetBytes(options_.profile));
  }

  void LogServing(const std::string& admin) const {
    const LinkDivider::Options& shares = options_.server.shares;
    Log(LogLevel::kInfo, "serving",
        {{"socket", options_.server.socket},
         {"admin", admin},
         {"mode", SharingModeName(shares.mode)},
         {"budget_bytes", shares.budget_bytes},
         {"capacity", FormatBitRate(options_.profile.capacity_bytes_per_second * 8)},
         {"lease_time", absl::FromChrono(shares.lease_time)}});
  }

  v1::LinkDaemonConfig config_;
  std::string ready_file_;
  LinkDaemonOptions options_;
};

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::LinkDaemon daemon;
  return sluice::RunProgram(
      argc, argv,
      {.name = "sluice-link",
       .description = "Divides the link of a host among the processes that read over it.",
       .example = "--socket /run/sluice/link.sock --capacity 10gbit --buffer 512kb --allowed-uids 1000,1001",
       .main_flags = {"--socket", "--capacity", "--buffer", "--allowed_uids"},
       .add_flags = [&](CLI::App& app) { daemon.AddFlags(app); },
       .config = &daemon.config(),
       .configure = [&] { return daemon.Configure(); },
       .check = [&] { return daemon.Check(); },
       .run = [&] { return daemon.Run(); }});
}
