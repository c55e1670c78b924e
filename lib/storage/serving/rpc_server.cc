#include "lib/storage/serving/rpc_server.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lib/net/asio_executor.h"
#include "lib/net/asio_listener.h"
#include "lib/net/worker_address.h"
#include "lib/storage/serving/server_credentials.h"

namespace sluice {
namespace {

// While fewer file descriptors than these are left, new connections are closed. If the process may have few, a quarter.
constexpr uint64_t kSpareDescriptors = 64;
// A client must complete TLS and send the preface of HTTP/2 within this time. gRPC's default is two minutes.
constexpr int kHandshakeTimeoutMs = 10'000;
// A client may send a PING this often, for its own keepalive. The connection ends at the third one that comes earlier.
constexpr int kMinPingIntervalMs = 20'000;
constexpr int kMaxEarlyPings = 2;
constexpr absl::Duration kMaxDrain = absl::Hours(24 * 365);  // the range of the wall clock ends not much later

// Returns the address with the port of `bound`.
std::string WithPort(const std::string& address, const std::string& bound) {
  if (IsUnixAddress(address)) return address;
  return address.substr(0, address.rfind(':')) + bound.substr(bound.rfind(':'));
}

void AddKeepalive(const RpcServer::Options& options, grpc::ServerBuilder& builder) {
  const auto milliseconds = [](absl::Duration time) { return static_cast<int>(absl::ToInt64Milliseconds(time)); };
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, milliseconds(options.keepalive_time));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, milliseconds(options.keepalive_timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, kMaxEarlyPings);
}

// gRPC's PING waits behind bytes that the client's kernel does not take, so the kernel must give these up itself. The
// call fails for a Unix socket, whose client cannot vanish.
void GiveUpUnsent(int fd, absl::Duration time) {
  const auto milliseconds = static_cast<unsigned int>(absl::ToInt64Milliseconds(time));
  (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds));
}

uint64_t MaxDescriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::numeric_limits<uint64_t>::max();
  return limit.rlim_cur - std::min(kSpareDescriptors, limit.rlim_cur / 4);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const Options& options,
                                                            const std::vector<grpc::Service*>& services) {
  const auto credentials = MakeServerCredentials(options.tls, options.on_refused_certificate);
  if (!credentials.ok()) return credentials.status();
  grpc::EnableDefaultHealthCheckService(false);
  if (options.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  std::unique_ptr<RpcServer> server(new RpcServer(options));
  grpc::ServerBuilder builder;
  for (grpc::Service* service : services) builder.RegisterService(service);
  builder.RegisterCallbackGenericService(&server->health_);
  builder.SetResourceQuota(grpc::ResourceQuota("sluice").Resize(options.memory_bytes));
  builder.SetMaxReceiveMessageSize(options.max_request_bytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  AddKeepalive(options, builder);
  if (options.max_connection_age < absl::InfiniteDuration()) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                               static_cast<int>(absl::ToInt64Milliseconds(options.max_connection_age)));
  }
  // Disable the probe of the bandwidth-delay product: requests are small, so their window need not grow. The probe
  // would send a ping with each response, and an acknowledgement of its echo. These would be two of ten packets through
  // the bottleneck, and no budget counts them.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  using ConnectionType = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  server->acceptor_ = builder.experimental().AddExternalConnectionAcceptor(ConnectionType::FROM_FD, *credentials);
  for (const uint32_t uid : options.access.Uids()) {
    const auto of_user = MakeServerCredentials(options.tls, uid, options.on_refused_certificate);
    if (!of_user.ok()) return of_user.status();
    server->acceptors_[uid] = builder.experimental().AddExternalConnectionAcceptor(ConnectionType::FROM_FD, *of_user);
  }
  server->server_ = builder.BuildAndStart();
  if (!server->server_) return absl::UnavailableError("gRPC cannot start a server");
  if (absl::Status listens = server->Listen(options.listen, options.passed); !listens.ok()) {
    server->CloseListeners();
    server->server_->Shutdown();
    server->server_.reset();
    return listens;
  }
  return server;
}

RpcServer::RpcServer(const Options& options)
    : keepalive_(options.keepalive_time + options.keepalive_timeout),
      drain_delay_(options.drain_delay),
      drain_timeout_(options.drain_timeout),
      on_refused_(options.on_refused),
      max_descriptors_(MaxDescriptors()),
      health_(options.ready),
      executor_(std::make_unique<AsioExecutor>()) {}

absl::Status RpcServer::Listen(const std::vector<std::string>& addresses,
                               const std::shared_ptr<PassedSockets>& passed) {
  absl::Status status;
  // The rules of access tell the users apart.
  const AsioListener::Options listener_options{
      .unix_mode = acceptors_.empty() ? 0600U : 0666U, .tls = nullptr, .passed = passed};
  executor_->Await([&] {
    for (const std::string& address : addresses) {
      auto listener = AsioListener::Listen(*executor_, address, listener_options,
                                           [this](const AcceptedConnection& connection) { Take(connection); });
      status.Update(listener.status());
      if (!listener.ok()) return;
      addresses_.push_back(WithPort(address, (*listener)->address()));
      listeners_.push_back(*std::move(listener));
    }
  });
  return status;
}

// The kernel takes the lowest number that is free for a descriptor. So a high number says that many are open.
void RpcServer::Take(const AcceptedConnection& connection) {
  const int fd = connection.release();
  if (fd < 0) return;
  if (static_cast<uint64_t>(fd) >= max_descriptors_) {
    close(fd);
    if (on_refused_ != nullptr) on_refused_(connection.peer);
    return;
  }
  GiveUpUnsent(fd, keepalive_);
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters accepted;
  accepted.fd = fd;
  const auto of_user = connection.client.has_value() ? acceptors_.find(*connection.client) : acceptors_.end();
  (of_user == acceptors_.end() ? acceptor_ : of_user->second)->HandleNewConnection(&accepted);
}

void RpcServer::CloseListeners() {
  executor_->Await([this] {
    for (const auto& listener : listeners_) listener->Stop();
  });
  executor_->Await([this] { listeners_.clear(); });
  executor_->Stop();
}

RpcServer::~RpcServer() {
  Drain();
}

void RpcServer::PostToAccepting(std::function<void()> task) {
  executor_->Post(std::move(task));
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
  CloseListeners();
  health_.EndWatches();
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(std::min(drain_timeout_, kMaxDrain)));
  server_->Wait();
  server_.reset();
}

}  // namespace sluice
