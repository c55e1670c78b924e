#include "worker/worker_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/cli/access_config.h"
#include "lib/cli/descriptor_limit.h"
#include "lib/cli/logging.h"
#include "lib/net/clock.h"

namespace sluice {
namespace {

void LogDisk(const std::string& folder, const absl::Status& state) {
  if (state.ok()) return Log(LogLevel::kInfo, "a disk completes reads again", {{"folder", folder}});
  Log(LogLevel::kError, "a disk is given up until it completes its reads", {{"folder", folder}, {"reason", state}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerServer>> WorkerServer::Start(const WorkerOptions& options, IoThread& io_thread) {
  RaiseDescriptorLimit();
  absl::StatusOr<StripeStore> store = StripeStore::Open(options.data);
  if (!store.ok()) return store.status();
  std::unique_ptr<WorkerServer> server(new WorkerServer(options, *std::move(store), io_thread));
  absl::Status admin = server->StartAdmin(options, io_thread);
  if (!admin.ok()) return admin;
  std::vector<grpc::Service*> services = {&server->sru_service_};
  if (options.probe) services.push_back(&server->probe_service_);
  RpcServer::Options rpc_options = options.rpc_server;
  rpc_options.on_refused = RefusedConnectionLog();
  rpc_options.on_refused_certificate = RefusedCertificateLog();
  absl::StatusOr<std::unique_ptr<RpcServer>> rpc_server = RpcServer::Start(rpc_options, services);
  if (!rpc_server.ok()) return rpc_server.status();
  server->rpc_server_ = *std::move(rpc_server);
  server->serving_ = true;
  return server;
}

WorkerServer::WorkerServer(const WorkerOptions& options, StripeStore store, IoThread& io_thread)
    : store_(std::move(store)),
      data_check_([this] { return store_.CheckReadable(); }),
      metrics_(registry_),
      access_(std::make_shared<AccessControl>(options.rpc_server.access, registry_, RefusedCallLog())),
      answer_watch_(io_thread),
      sru_service_(store_, metrics_, answer_watch_.reports(), io_thread.context(),
                   {.think_time = options.think_time, .access = access_, .disk = {.on_state = LogDisk}}),
      probe_service_(io_thread.context(), {.access = access_}) {
  if (!answer_watch_.status().ok()) {
    Log(LogLevel::kWarning, "what TCP does cannot be seen", {{"reason", answer_watch_.status()}});
  }
  threads_.Add("accepting thread",
               [this](std::function<void()> task) { rpc_server_->PostToAccepting(std::move(task)); });
}

absl::Status WorkerServer::StartAdmin(const WorkerOptions& options, IoThread& io_thread) {
  if (options.admin.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<AdminServer>> admin = AdminServer::Start(
      io_thread.context(), {.listen = options.admin,
                            .field = "admin",
                            .name = "sluice-worker",
                            .collectables = {&registry_, &answer_watch_.metrics(), &process_metrics_},
                            .live = [this] { return Live(); },
                            .ready = [this] { return Ready(); },
                            .passed = options.rpc_server.passed});
  if (!admin.ok()) return admin.status();
  admin_ = *std::move(admin);
  return absl::OkStatus();
}

// A drain ends the accepting thread.
absl::Status WorkerServer::Live() {
  return serving_ && !draining_ ? threads_.Look(Now()) : absl::OkStatus();
}

absl::Status WorkerServer::Ready() {
  if (draining_) return absl::UnavailableError("draining");
  if (!serving_) return absl::UnavailableError("not listening yet");
  if (absl::Status room = rpc_server_->CheckRoom(); !room.ok()) return room;
  const absl::Status readable = data_check_.Look();
  return readable.ok() ? readable : absl::UnavailableError(absl::StrCat("data: ", readable.message()));
}

void WorkerServer::Drain() {
  draining_ = true;
  rpc_server_->Drain();
}

}  // namespace sluice
