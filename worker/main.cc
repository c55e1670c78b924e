#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sluice/v1/config.pb.h"

#include "absl/strings/str_join.h"
#include "lib/cli/config_flags.h"
#include "lib/cli/logging.h"
#include "lib/cli/program.h"
#include "lib/cli/ready_file.h"
#include "lib/cli/termination_signal.h"
#include "lib/cli/tls_flags.h"
#include "lib/net/io_thread.h"
#include "lib/net/passed_sockets.h"
#include "lib/storage/serving/grpc_log.h"
#include "lib/storage/stripe/stripe_store.h"
#include "worker/worker_config.h"
#include "worker/worker_server.h"

namespace sluice {
namespace {

class Worker {
 public:
  google::protobuf::Message& config() { return config_; }

  void AddFlags(CLI::App& app) {
    ConfigFlags(config_).AddTo(app);
    AddReadyFileFlag(app, ready_file_);
  }

  absl::Status Configure() {
    absl::Status status = SetLogLevel(config_.log_level());
    if (!status.ok()) return status;
    absl::StatusOr<WorkerOptions> options = ParseWorkerConfig(config_);
    if (!options.ok()) return options.status();
    options_ = *std::move(options);
    return CheckTlsFiles({.server = options_.rpc_server.tls});
  }

  absl::Status Check() const {
    const absl::StatusOr<StripeStore> store = StripeStore::Open(options_.data);
    if (!store.ok()) return store.status();
    const absl::StatusOr<std::vector<uint32_t>> workers = store->Workers();
    if (!workers.ok()) return workers.status();
    Warn(*workers, options_.rpc_server.listen);
    return CheckReadyFile(ready_file_);
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
    const absl::StatusOr<std::unique_ptr<WorkerServer>> server = WorkerServer::Start(options_, io_thread);
    if (!server.ok()) return server.status();
    absl::Status announced = Announce(**server);
    if (!announced.ok()) return announced;
    const int signal = termination.Wait();
    Log(LogLevel::kInfo, "draining", {{"signal", signal}, {"timeout", options_.rpc_server.drain_timeout}});
    (*server)->Drain();
    Log(LogLevel::kInfo, "stopped");
    return absl::OkStatus();
  }

 private:
  void Warn(const std::vector<uint32_t>& workers, const std::vector<std::string>& addresses) const {
    if (workers.empty()) {
      Log(LogLevel::kWarning, "no worker-NNNN folder is there yet; every read is NOT_FOUND", {{"data", options_.data}});
    }
    WarnWithoutTls(options_.rpc_server.tls, addresses);
  }

  absl::Status Announce(const WorkerServer& server) const {
    const absl::StatusOr<std::vector<uint32_t>> workers = server.store().Workers();
    if (!workers.ok()) return workers.status();
    std::vector<std::string> addresses = server.addresses();
    const std::string admin = server.admin_address();
    Warn(*workers, addresses);
    Log(LogLevel::kInfo, "serving",
        {{"listen", absl::StrJoin(addresses, ",")},
         {"admin", admin},
         {"data", options_.data},
         {"workers", workers->size()}});
    if (!admin.empty()) addresses.push_back(admin);
    return WriteReadyFile(ready_file_, addresses);
  }

  v1::WorkerConfig config_;
  std::string ready_file_;
  WorkerOptions options_;
};

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::Worker worker;
  return sluice::RunProgram(argc, argv,
                            {.name = "sluice-worker",
                             .description = "Serves the SRUs of striped files, from a folder that sluice-stripe made.",
                             .example = "--listen 0.0.0.0:7000 --data /var/lib/sluice --admin 127.0.0.1:9100",
                             .main_flags = {"--listen", "--data", "--admin", "--tls_certificate"},
                             .add_flags = [&](CLI::App& app) { worker.AddFlags(app); },
                             .config = &worker.config(),
                             .configure = [&] { return worker.Configure(); },
                             .check = [&] { return worker.Check(); },
                             .run = [&] { return worker.Run(); }});
}
