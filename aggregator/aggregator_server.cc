#include "aggregator/aggregator_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <utility>

#include "lib/cli/logging.h"

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// A read holds two segments; its messages on the way to a slow client come on top, and this bounds those of all reads.
constexpr size_t kServerMemoryBytes = 256 << 20;

void LogUnconnected(const std::vector<std::string>& addresses) {
  constexpr size_t kNamed = 5;
  for (size_t i = 0; i < addresses.size() && i < kNamed; ++i) {
    Log(LogLevel::kWarning, "worker does not answer; it is tried again when it is needed", {{"worker", addresses[i]}});
  }
  if (addresses.size() > kNamed) Log(LogLevel::kWarning, "more workers do not answer", {{"count", addresses.size()}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<AggregatorServer>> AggregatorServer::Start(const AggregatorOptions& options,
                                                                          IoThread& io_thread) {
  auto link = Link::Create(options.link);
  if (!link.ok()) return link.status();
  auto reader = BlockReader::Create(*link, options.reader);
  if (!reader.ok()) return reader.status();
  std::unique_ptr<AggregatorServer> server(new AggregatorServer(options, *link, *std::move(reader)));
  LogUnconnected(server->reader_->Connect());
  if (absl::Status started = server->Listen(options); !started.ok()) return started;
  if (!options.admin.empty()) {
    auto admin = AdminServer::Start(io_thread, options.admin, (*link)->registry(), [] { return true; });
    if (!admin.ok()) return admin.status();
    server->admin_ = *std::move(admin);
  }
  return server;
}

AggregatorServer::AggregatorServer(const AggregatorOptions& options, std::shared_ptr<Link> link,
                                   std::unique_ptr<BlockReader> reader)
    : drain_timeout_(options.drain_timeout), link_(std::move(link)), reader_(std::move(reader)), service_(*reader_) {}

AggregatorServer::~AggregatorServer() { Drain(); }

absl::Status AggregatorServer::Listen(const AggregatorOptions& options) {
  grpc::EnableDefaultHealthCheckService(true);
  if (options.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  // Two servers must not share a port unnoticed.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetResourceQuota(grpc::ResourceQuota("aggregator").Resize(kServerMemoryBytes));
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(&service_);
  server_ = builder.BuildAndStart();
  if (!server_) return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen, "; is the port taken?"));
  return absl::OkStatus();
}

void AggregatorServer::Drain() {
  if (!server_) return;
  if (auto* health = server_->GetHealthCheckService()) health->SetServingStatus(false);
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(drain_timeout_));
  server_->Wait();
  server_.reset();
}

}  // namespace sluice
