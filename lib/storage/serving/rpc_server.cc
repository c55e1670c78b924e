#include "lib/storage/serving/rpc_server.h"

#include <algorithm>
#include <chrono>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lib/net/worker_address.h"
#include "lib/storage/serving/server_credentials.h"

namespace sluice {
namespace {

constexpr absl::Duration kMaxDrain = absl::Hours(24 * 365);  // the range of the wall clock ends not much later

std::string WithPort(const std::string& address, int port) {
  if (IsUnixAddress(address)) return address;
  return absl::StrCat(address.substr(0, address.rfind(':') + 1), port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const Options& options,
                                                            const std::vector<grpc::Service*>& services) {
  const auto credentials = MakeServerCredentials(options.tls);
  if (!credentials.ok()) return credentials.status();
  grpc::EnableDefaultHealthCheckService(false);
  if (options.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  std::unique_ptr<RpcServer> server(new RpcServer(options));
  grpc::ServerBuilder builder;
  for (grpc::Service* service : services) builder.RegisterService(service);
  builder.RegisterCallbackGenericService(&server->health_);
  builder.SetResourceQuota(grpc::ResourceQuota("sluice").Resize(options.memory_bytes));
  builder.SetMaxReceiveMessageSize(options.max_request_bytes);
  // By default two servers on one port each get half of the connections, without an error.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Disable the probe of the bandwidth-delay product: requests are small, so their window need not grow. The probe
  // would send a ping with each response, and an acknowledgement of its echo. These would be two of ten packets through
  // the bottleneck, and no budget counts them.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  std::vector<int> ports(options.listen.size(), 0);
  for (size_t i = 0; i < ports.size(); ++i) {
    builder.AddListeningPort(options.listen[i], *credentials, &ports[i]);
  }
  server->server_ = builder.BuildAndStart();
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i] == 0) {
      return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen[i],
                                                 ": the port is in use, or the address is not one of this machine"));
    }
    server->addresses_.push_back(WithPort(options.listen[i], ports[i]));
  }
  if (!server->server_) return absl::UnavailableError("gRPC cannot start a server");
  return server;
}

RpcServer::~RpcServer() {
  Drain();
}

void RpcServer::SetReady(bool ready) {
  absl::MutexLock lock(&mutex_);
  if (!draining_) health_.SetReady(ready);
}

void RpcServer::Drain() {
  if (!server_) return;
  {
    absl::MutexLock lock(&mutex_);
    draining_ = true;
    health_.SetReady(false);
  }
  absl::SleepFor(std::min(drain_delay_, kMaxDrain));
  health_.EndWatches();
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(std::min(drain_timeout_, kMaxDrain)));
  server_->Wait();
  server_.reset();
}

}  // namespace sluice
