#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sluice/plan.h"

#include "aggregator/aggregator_server.h"
#include "aggregator/reloadable_config.h"
#include "lib/cli/config_flags.h"
#include "lib/cli/config_reload.h"
#include "lib/cli/file_watch.h"
#include "lib/cli/link_log.h"
#include "lib/cli/logging.h"
#include "lib/cli/program.h"
#include "lib/cli/ready_file.h"
#include "lib/cli/termination_signal.h"
#include "lib/cli/tls_flags.h"
#include "lib/cli/units.h"
#include "lib/net/passed_sockets.h"
#include "lib/storage/serving/grpc_log.h"

namespace sluice {
namespace {

// The settings from the command line and the config file.
struct AggregatorFlags {
  void AddTo(CLI::App& app) {
    ConfigFlags(config).AddTo(app);
    AddReadyFileFlag(app, ready_file);
  }

  v1::AggregatorConfig config;
  std::string ready_file;
};

class Aggregator {
 public:
  Aggregator(int argc, char** argv) : argc_(argc), argv_(argv) {}

  absl::Status Configure() {
    if (absl::Status status = SetLogLevel(flags_.config.log_level()); !status.ok()) return status;
    auto options = ParseAggregatorConfig(flags_.config);
    if (!options.ok()) return options.status();
    options_ = *std::move(options);
    SetLogTreeLevel(options_.level);
    return CheckTlsFiles({.server = options_.rpc_server.tls, .client = options_.reader.tls});
  }

  absl::Status Check() const {
    Warn(options_.rpc_server.listen);
    return CheckReadyFile(flags_.ready_file);
  }

  absl::Status Run() {
    auto passed = PassedSockets::FromEnvironment();
    if (!passed.ok()) return passed.status();
    std::vector<PassedSockets::Configured> addresses;
    for (const std::string& address : options_.rpc_server.listen) addresses.push_back({"listen", address});
    addresses.push_back({"admin", options_.admin});
    if (absl::Status matches = (*passed)->Check(std::move(addresses)); !matches.ok()) return matches;
    options_.rpc_server.passed = *std::move(passed);
    LogWhatGrpcLogs();
    IoThread io_thread;
    TerminationSignal termination(io_thread.context());
    auto server = AggregatorServer::Start(options_, io_thread);
    if (!server.ok()) return server.status();
    const ScheduleOptions& schedule = options_.link.schedule;
    Log(LogLevel::kInfo, "serving",
        {{"listen", (*server)->address()},
         {"admin", (*server)->admin_address()},
         {"workers", options_.reader.workers.size()},
         {"policy", SchedulePolicyName(schedule.policy)},
         {"capacity", FormatBitRate(schedule.profile.capacity_bytes_per_second * 8)},
         {"buffer_bytes", BufferBudgetBytes(schedule.profile)}});
    Warn({(*server)->address()});
    const absl::Status ready = WriteReadyFile(flags_.ready_file, {(*server)->address(), (*server)->admin_address()});
    if (!ready.ok()) return ready;
    ConfigReload reload = MakeReload(**server);
    const std::unique_ptr<FileWatch> watch = WatchConfig(io_thread, reload);
    const int signal = termination.Wait();
    Log(LogLevel::kInfo, "draining", {{"signal", signal}, {"timeout", options_.rpc_server.drain_timeout}});
    (*server)->Drain();
    Log(LogLevel::kInfo, "stopped");
    return absl::OkStatus();
  }

  AggregatorFlags& flags() { return flags_; }
  std::string& config_file() { return config_file_; }

 private:
  void Warn(const std::vector<std::string>& addresses) const {
    WarnOfLargeBudget(options_.link);
    WarnWithoutTls(options_.rpc_server.tls, addresses);
  }

  ConfigReload MakeReload(AggregatorServer& server) const {
    const auto apply = [&server](const AggregatorOptions& options) { return server.Reconfigure(options); };
    return ConfigReload(ReloadOptions(flags_, argc_, argv_, CheckReloadable, ParseAggregatorConfig, apply),
                        server.config_metrics());
  }

  std::unique_ptr<FileWatch> WatchConfig(IoThread& io_thread, ConfigReload& reload) const {
    if (config_file_.empty()) return nullptr;
    return std::make_unique<FileWatch>(io_thread.context(), config_file_, options_.reload_interval,
                                       [&reload] { reload.Look(); });
  }

  const int argc_;
  char** const argv_;
  AggregatorFlags flags_;
  std::string config_file_;
  AggregatorOptions options_;
};

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::Aggregator aggregator(argc, argv);
  return sluice::RunProgram(
      argc, argv,
      {.name = "sluice-aggregator",
       .description = "Reads files striped over many workers without TCP incast, and serves them to clients.",
       .example = "--listen 0.0.0.0:7500 --workers 10.0.0.1:7000,10.0.0.2:7000 --capacity 10gbit --buffer 512kb",
       .main_flags = {"--listen", "--workers", "--capacity", "--buffer"},
       .add_flags = [&](CLI::App& app) { aggregator.flags().AddTo(app); },
       .config = &aggregator.flags().config,
       .config_file = &aggregator.config_file(),
       .configure = [&] { return aggregator.Configure(); },
       .check = [&] { return aggregator.Check(); },
       .run = [&] { return aggregator.Run(); }});
}
