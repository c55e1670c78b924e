#include "examples/search/shard_server.h"

#include <chrono>
#include <utility>

#include <grpcpp/health_check_service_interface.h>

#include "absl/strings/str_cat.h"
#include "lib/storage/serving/server_credentials.h"

namespace sluice::examples::search {
namespace {

constexpr auto kDrainTimeout = std::chrono::seconds(10);

}  // namespace

absl::StatusOr<ShardServer> ShardServer::Start(grpc::Service& service, const std::string& listen,
                                               const std::optional<ServerTls>& tls) {
  const auto credentials = MakeServerCredentials(tls);
  if (!credentials.ok()) return credentials.status();
  grpc::EnableDefaultHealthCheckService(true);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // fail if a different server has the port
  builder.AddListeningPort(listen, *credentials, &port);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server || port == 0) return absl::UnavailableError(absl::StrCat("listen: cannot serve on ", listen));
  return ShardServer(std::move(server), absl::StrCat(listen.substr(0, listen.rfind(':') + 1), port));
}

ShardServer::ShardServer(std::unique_ptr<grpc::Server> server, std::string address)
    : server_(std::move(server)), address_(std::move(address)) {}

void ShardServer::Drain() {
  server_->Shutdown(std::chrono::system_clock::now() + kDrainTimeout);
}

}  // namespace sluice::examples::search
