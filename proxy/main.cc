#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/plan.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lib/cli/config_flags.h"
#include "lib/cli/config_reload.h"
#include "lib/cli/file_watch.h"
#include "lib/cli/link_log.h"
#include "lib/cli/link_options.h"
#include "lib/cli/logging.h"
#include "lib/cli/memory_limit.h"
#include "lib/cli/program.h"
#include "lib/cli/ready_file.h"
#include "lib/cli/termination_signal.h"
#include "lib/cli/tls_flags.h"
#include "lib/cli/units.h"
#include "lib/net/passed_sockets.h"
#include "lib/tls/tls_context.h"
#include "proxy/proxy_config.h"
#include "proxy/proxy_program.h"

namespace sluice {
namespace {

// The settings from the command line and the config file.
struct ProxyFlags {
  void AddTo(CLI::App& app) {
    ConfigFlags flags(config);
    flags.SetParser("route", [this](const std::vector<std::string>& list) { return SetRoutes(list); });
    flags.SetParser("class", [this](const std::vector<std::string>& list) {
      return SetTrafficClasses(list, *config.mutable_schedule());
    });
    flags.SetParser("client", [this](const std::vector<std::string>& list) { return SetClients(list); });
    flags.AddTo(app);
    AddReadyFileFlag(app, ready_file);
  }

  v1::ProxyConfig config;
  std::string ready_file;

 private:
  // One group for each client. A URI may have "=" in it.
  absl::Status SetClients(const std::vector<std::string>& list) {
    config.clear_clients();
    std::map<std::string, v1::ProxyClients*> groups;
    for (const std::string& text : list) {
      const size_t end = text.rfind('=');
      if (end == std::string::npos || end == 0 || end + 1 == text.size()) {
        return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not CLIENT=PATTERN"));
      }
      const std::string client = text.substr(0, end);
      v1::ProxyClients*& group = groups[client];
      if (group == nullptr) {
        group = config.add_clients();
        uint32_t user = 0;
        if (absl::SimpleAtoi(client, &user)) {
          group->add_uids(user);
        } else {
          group->add_names(client);
        }
      }
      group->add_workers(text.substr(end + 1));
    }
    return absl::OkStatus();
  }

  // A text without "=" is refused with the routes that lack a part.
  absl::Status SetRoutes(const std::vector<std::string>& list) {
    config.clear_routes();
    for (const std::string& text : list) {
      const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
      v1::ProxyRoute& route = *config.add_routes();
      route.set_listen(parts.first);
      route.set_workers(parts.second);
    }
    return absl::OkStatus();
  }
};

class Proxy {
 public:
  Proxy(int argc, char** argv) : argc_(argc), argv_(argv) {}

  absl::Status Configure() {
    if (absl::Status status = SetLogLevel(flags_.config.log_level()); !status.ok()) return status;
    auto options = ParseProxyConfig(flags_.config, MemoryLimit());
    if (!options.ok()) return options.status();
    options_ = *std::move(options);
    absl::Status files = CheckTlsFiles({.client = options_.server.tls});
    if (options_.server.listener_tls.has_value()) files.Update(ValidateListenerTls(*options_.server.listener_tls));
    return files;
  }

  absl::Status Check() const {
    std::vector<std::string> addresses;
    for (const ProxyServer::Listener& listener : options_.server.listeners) addresses.push_back(listener.address);
    Warn(addresses);
    return CheckReadyFile(flags_.ready_file);
  }

  absl::Status Run() {
    auto passed = PassedSockets::FromEnvironment();
    if (!passed.ok()) return passed.status();
    std::vector<PassedSockets::Configured> addresses;
    for (const ProxyServer::Listener& listener : options_.server.listeners) {
      addresses.push_back({listener.route.empty() ? "listen" : "routes", listener.address});
    }
    addresses.push_back({"admin", options_.admin});
    if (absl::Status matches = (*passed)->Check(std::move(addresses)); !matches.ok()) return matches;
    options_.server.passed = *std::move(passed);
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
  // `addresses` are those of the listeners, in their order.
  void Warn(const std::vector<std::string>& addresses) const {
    WarnOfLargeBudget(options_.link);
    const std::optional<int64_t> memory_bytes = MemoryLimit();
    const int64_t needed_bytes = MemoryOfLimits(options_.server.proxy);
    if (memory_bytes.has_value() && needed_bytes > *memory_bytes) {
      Log(LogLevel::kWarning, "limits may take more memory than the process has",
          {{"limits_bytes", needed_bytes},
           {"memory_bytes", *memory_bytes},
           {"reason", "leave out limits.connections, calls and held, or raise the memory limit of the container"}});
    }
    std::vector<std::string> open;  // to any client that can reach them
    for (size_t i = 0; i < addresses.size(); ++i) {
      const ProxyServer::Listener& listener = options_.server.listeners[i];
      // Only the rules of this host lead clients to a listener of redirected connections.
      const bool redirected = listener.kind == ProxyServer::Listener::Kind::kRedirected;
      if (!listener.tls && !redirected) open.push_back(addresses[i]);
    }
    for (const std::string& address : BeyondThisHost(open)) {
      Log(LogLevel::kWarning, "whoever reaches this address may call the workers through this proxy",
          {{"listen", address}});
    }
  }

  absl::Status Announce(const ProxyProgram& program) const {
    const ScheduleOptions& schedule = options_.link.schedule;
    std::vector<std::string> addresses = program.addresses();
    const std::string admin = program.admin_address();
    std::vector<std::string> listen;  // in the notation of the config
    for (size_t i = 0; i < addresses.size(); ++i) {
      listen.push_back(AddressInConfig(options_.server.listeners[i], addresses[i]));
    }
    Log(LogLevel::kInfo, "serving",
        {{"listen", absl::StrJoin(listen, ",")},
         {"admin", admin},
         {"workers", options_.server.workers.empty() ? "private" : absl::StrJoin(options_.server.workers, ",")},
         {"policy", SchedulePolicyName(schedule.policy)},
         {"capacity", FormatBitRate(schedule.profile.capacity_bytes_per_second * 8)},
         {"buffer_bytes", BufferBudgetBytes(schedule.profile)}});
    Warn(addresses);
    if (!admin.empty()) addresses.push_back(admin);
    return WriteReadyFile(flags_.ready_file, addresses);
  }

  ConfigReload MakeReload(ProxyProgram& program) const {
    const auto apply = [&program](const ProxyProgramOptions& options) { return program.Reconfigure(options); };
    const auto parse = [](const v1::ProxyConfig& config) { return ParseProxyConfig(config, MemoryLimit()); };
    return ConfigReload(ReloadOptions(flags_, argc_, argv_, CheckReloadable, parse, apply), program.config_metrics());
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
                                            "lets their responses come without TCP incast.",
                             .example = "--listen 127.0.0.1:7400 --workers 10.0.0.0/8 --capacity 10gbit --buffer 512kb",
                             .main_flags = {"--listen", "--workers", "--capacity", "--buffer"},
                             .add_flags = [&](CLI::App& app) { proxy.flags().AddTo(app); },
                             .config = &proxy.flags().config,
                             .config_file = &proxy.config_file(),
                             .configure = [&] { return proxy.Configure(); },
                             .check = [&] { return proxy.Check(); },
                             .run = [&] { return proxy.Run(); }});
}
