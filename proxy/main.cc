#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "sluice/plan.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lib/cli/config_reload.h"
#include "lib/cli/file_watch.h"
#include "lib/cli/link_options.h"
#include "lib/cli/logging.h"
#include "lib/cli/program.h"
#include "lib/cli/ready_file.h"
#include "lib/cli/termination_signal.h"
#include "lib/cli/tls_flags.h"
#include "lib/cli/units.h"
#include "lib/tls/tls_context.h"
#include "proxy/proxy_config.h"
#include "proxy/proxy_program.h"

namespace sluice {
namespace {

// The settings from the command line and the config file.
struct ProxyFlags {
  void AddTo(CLI::App& app) {
    AddListFlag(
        app, "--listen",
        "Addresses for clients, host:port, tls:host:port or unix:PATH; calls name their workers by :authority, or "
        "tunnels by CONNECT",
        [this](const std::vector<std::string>& list) { config.mutable_listen()->Assign(list.begin(), list.end()); });
    AddListFlag(app, "--route",
                "LISTEN=WORKERS: an address for clients that stands for one worker, or for one name "
                "whose addresses are called in turn",
                [this](const std::vector<std::string>& list) { SetRoutes(list); });
    AddListFlag(
        app, "--workers",
        "Patterns of the workers that may be called: 10.0.0.0/8, *.workers.svc:7000, unix:PATH. "
        "Default private, which is all private networks",
        [this](const std::vector<std::string>& list) { config.mutable_workers()->Assign(list.begin(), list.end()); });
    AddListFlag(
        app, "--client",
        "WHO=PATTERN: a worker that this client may call, and none of --workers: a user of Unix sockets, by number, or "
        "a DNS name or URI of certificates. Give it several times for several patterns",
        [this](const std::vector<std::string>& list) { SetClients(list); });
    AddTextFlag(app, "--worker_header", "Request header that names the worker in place of :authority. Default: none",
                [this](const auto& value) { config.set_worker_header(value); });
    app.add_option_function<bool>(
        "--tunnels_to_workers", [this](bool value) { config.mutable_tunnels()->set_to_workers(value); },
        "Pass tunnels to workers that carry something else than HTTP/2 in the clear, such as TLS. Default true");
    app.add_option_function<bool>(
        "--tunnels_to_others", [this](bool value) { config.mutable_tunnels()->set_to_others(value); },
        "Pass tunnels of clients on this host to hosts that are no workers. Default true");
    AddTextFlag(
        app, "--tunnels_receive_window",
        "Bytes that a worker may send ahead through such a tunnel; 0: as many as the kernel lets it. Default 64kb",
        [this](const auto& value) { config.mutable_tunnels()->set_receive_window(value); });
    AddLimitFlags(app);
    AddListFlag(app, "--client_uids",
                "Users who may connect to Unix sockets, by number. Default: whom the mode of the socket lets in",
                [this](const std::vector<std::string>& list) { SetClientUids(list); });
    AddTextFlag(app, "--socket_mode", "Mode of Unix sockets, octal. Default 0660",
                [this](const auto& value) { config.set_socket_mode(value); });
    AddTextFlag(app, "--admin", "Address of /metrics and /healthz, host:port. Default: none",
                [this](const auto& value) { config.set_admin(value); });
    AddTextFlag(app, "--drain_delay", "How long to go on serving after SIGTERM while /healthz says draining. Default 0",
                [this](const auto& value) { config.set_drain_delay(value); });
    AddTextFlag(app, "--drain_timeout", "How long to wait after SIGTERM for calls under way. Default 10s",
                [this](const auto& value) { config.set_drain_timeout(value); });
    AddTextFlag(app, "--log_level", "Lowest level to log: debug, info, warning or error. Default info",
                [this](const auto& value) { config.set_log_level(value); });
    AddTextFlag(app, "--reload_interval", "How often to look for changes of the config file; 0 means never. Default 2s",
                [this](const auto& value) { config.set_reload_interval(value); });
    app.add_option("--ready_file", ready_file,
                   "File to write the bound addresses to when the proxy serves, one per line");
    AddTlsFlags(
        app, [this] { return config.mutable_tls(); }, TlsRole::kClient);
    AddListenerTlsFlags(app);
    AddLinkFlags(app, config, "sluice-proxy");
    app.get_option("--policy")->description("Policy of the schedule: unscheduled, rolling or grants. Default grants");
  }

  v1::ProxyConfig config;
  std::string ready_file;

 private:
  void AddListenerTlsFlags(CLI::App& app) {
    AddTextFlag(app, "--listener_tls_certificate",
                "Certificate chain of this proxy for its clients at tls:host:port. PEM",
                [this](const auto& value) { config.mutable_listener_tls()->set_certificate(value); });
    AddTextFlag(app, "--listener_tls_key", "Private key of that certificate. PEM",
                [this](const auto& value) { config.mutable_listener_tls()->set_key(value); });
    AddTextFlag(app, "--listener_tls_client_ca", "Authorities of the clients' certificates, which these must show. PEM",
                [this](const auto& value) { config.mutable_listener_tls()->set_client_ca(value); });
    AddListFlag(app, "--listener_tls_client_names",
                "DNS names and URIs, of which the certificate of a client must have one. Default: any will do",
                [this](const std::vector<std::string>& list) {
                  config.mutable_listener_tls()->mutable_client_names()->Assign(list.begin(), list.end());
                });
  }

  void AddLimitFlags(CLI::App& app) {
    const auto number = [&](const char* name, void (v1::ProxyLimits::*set)(uint32_t), const char* help) {
      app.add_option_function<uint32_t>(
          name, [this, set](uint32_t value) { (config.mutable_limits()->*set)(value); }, help);
    };
    const auto text = [&](const char* name, void (v1::ProxyLimits::*set)(const std::string&), const char* help) {
      AddTextFlag(app, name, help, [this, set](const auto& value) { (config.mutable_limits()->*set)(value); });
    };
    number("--limits_connections", &v1::ProxyLimits::set_connections, "Connections of clients. Default 16384");
    number("--limits_calls", &v1::ProxyLimits::set_calls, "Calls that have not ended. Default 65536");
    number("--limits_streams", &v1::ProxyLimits::set_streams, "Calls at a time on one connection. Default 4096");
    text("--limits_headers", &v1::ProxyLimits::set_headers<const std::string&>, "Headers of one call. Default 64kb");
    text("--limits_held", &v1::ProxyLimits::set_held<const std::string&>,
         "Bytes that are kept for clients that do not read, and for workers that do not. Default 256mb");
    text("--limits_held_per_call", &v1::ProxyLimits::set_held_per_call<const std::string&>,
         "Bytes that are kept of one answer. Default 1mb");
    text("--limits_opening_timeout", &v1::ProxyLimits::set_opening_timeout<const std::string&>,
         "Time for a new connection to begin HTTP/2, or CONNECT. Default 10s");
    text("--limits_client_stall_timeout", &v1::ProxyLimits::set_client_stall_timeout<const std::string&>,
         "A call whose client takes nothing of its answer for so long ends. Default 60s");
  }

  void SetClientUids(const std::vector<std::string>& list) {
    config.clear_client_uids();
    for (const std::string& text : list) {
      uint32_t user = 0;
      if (!absl::SimpleAtoi(text, &user)) {
        throw CLI::ValidationError("--client_uids", "\"" + text + "\" is not the number of a user");
      }
      config.add_client_uids(user);
    }
  }

  // Creates one group for each client. A URI may contain "=".
  void SetClients(const std::vector<std::string>& list) {
    config.clear_clients();
    std::map<std::string, v1::ProxyClients*> groups;
    for (const std::string& text : list) {
      const size_t end = text.rfind('=');
      if (end == std::string::npos || end == 0 || end + 1 == text.size()) {
        throw CLI::ValidationError("--client", "\"" + text + "\" is not WHO=PATTERN");
      }
      const std::string who = text.substr(0, end);
      v1::ProxyClients*& group = groups[who];
      if (group == nullptr) {
        group = config.add_clients();
        uint32_t user = 0;
        if (absl::SimpleAtoi(who, &user)) {
          group->add_uids(user);
        } else {
          group->add_names(who);
        }
      }
      group->add_workers(text.substr(end + 1));
    }
  }

  // A route without "=" is rejected later, with the routes that lack a part.
  void SetRoutes(const std::vector<std::string>& list) {
    config.clear_routes();
    for (const std::string& text : list) {
      const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
      v1::ProxyRoute& route = *config.add_routes();
      route.set_listen(parts.first);
      route.set_workers(parts.second);
    }
  }
};

class Proxy {
 public:
  Proxy(int argc, char** argv) : argc_(argc), argv_(argv) {}

  absl::Status Configure() {
    if (absl::Status status = SetLogLevel(flags_.config.log_level()); !status.ok()) return status;
    auto options = ParseProxyConfig(flags_.config);
    if (!options.ok()) return options.status();
    options_ = *std::move(options);
    absl::Status files = CheckTlsFiles({.client = options_.server.tls});
    if (options_.server.listener_tls.has_value()) files.Update(ValidateListenerTls(*options_.server.listener_tls));
    return files;
  }

  absl::Status Run() {
    IoThread io_thread;
    TerminationSignal termination(io_thread.context());
    auto program = ProxyProgram::Start(options_, io_thread);
    if (!program.ok()) return program.status();
    if (absl::Status announced = Announce(**program); !announced.ok()) return announced;
    ConfigReload reload = MakeReload(**program);
    std::unique_ptr<FileWatch> watch;
    if (!config_file_.empty()) {
      watch = std::make_unique<FileWatch>(io_thread.context(), config_file_, options_.reload_interval,
                                          [&reload] { reload.Look(); });
    }
    const int signal = termination.Wait();
    watch.reset();
    Log(LogLevel::kInfo, "draining", {{"signal", signal}, {"timeout", options_.drain_timeout}});
    (*program)->Drain();
    Log(LogLevel::kInfo, "stopped");
    return absl::OkStatus();
  }

  ProxyFlags& flags() { return flags_; }
  std::string& config_file() { return config_file_; }

 private:
  absl::Status Announce(const ProxyProgram& program) const {
    const ScheduleOptions& schedule = options_.link.schedule;
    std::vector<std::string> addresses = program.addresses();
    const std::string admin = program.admin_address();
    std::vector<std::string> listen;  // in the notation of the config
    std::vector<std::string> open;    // to any client that can reach them
    for (size_t i = 0; i < addresses.size(); ++i) {
      const bool tls = options_.server.listeners[i].tls;
      listen.push_back(tls ? "tls:" + addresses[i] : addresses[i]);
      if (!tls) open.push_back(addresses[i]);
    }
    Log(LogLevel::kInfo, "serving",
        {{"listen", absl::StrJoin(listen, ",")},
         {"admin", admin},
         {"workers", options_.server.workers.empty() ? "private" : absl::StrJoin(options_.server.workers, ",")},
         {"policy", SchedulePolicyName(schedule.policy)},
         {"capacity", FormatBitRate(schedule.profile.capacity_bytes_per_second * 8)},
         {"buffer_bytes", BufferBudgetBytes(schedule.profile)}});
    for (const std::string& address : BeyondThisHost(open)) {
      Log(LogLevel::kWarning, "whoever reaches this address may call the workers through this proxy",
          {{"listen", address}});
    }
    if (!admin.empty()) addresses.push_back(admin);
    return WriteReadyFile(flags_.ready_file, addresses);
  }

  ConfigReload MakeReload(ProxyProgram& program) const {
    const auto apply = [&program](const ProxyProgramOptions& options) { return program.Reconfigure(options); };
    return ConfigReload(ReloadOptions(flags_, argc_, argv_, CheckReloadable, ParseProxyConfig, apply),
                        program.config_metrics());
  }

  const int argc_;
  char** const argv_;
  ProxyFlags flags_;
  std::string config_file_;
  ProxyProgramOptions options_;
};

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::Proxy proxy(argc, argv);
  return sluice::RunProgram(argc, argv,
                            {.name = "sluice-proxy",
                             .description = "Carries the gRPC calls of programs in any language to many workers, and "
                                            "lets their answers come without TCP incast.",
                             .example = "--listen 127.0.0.1:7400 --workers 10.0.0.0/8 --capacity 10gbit --buffer 512kb",
                             .main_flags = {"--listen", "--workers", "--capacity", "--buffer"},
                             .add_flags = [&](CLI::App& app) { proxy.flags().AddTo(app); },
                             .config = &proxy.flags().config,
                             .config_file = &proxy.config_file(),
                             .configure = [&] { return proxy.Configure(); },
                             .check = [&] { return sluice::CheckReadyFile(proxy.flags().ready_file); },
                             .run = [&] { return proxy.Run(); }});
}
