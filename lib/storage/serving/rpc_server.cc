#include "lib/storage/serving/rpc_server.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
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
// A client must send its first byte within this time, and then complete TLS and send the preface of HTTP/2 within it.
// gRPC's default is two minutes.
constexpr std::chrono::milliseconds kHandshakeTimeout{10'000};
// Concurrent calls of one connection. gRPC has no bound of its own, and each call takes some 5 KB before it is
// answered. Links use up to four connections to a worker, so a fan-out may have 4096 calls there.
constexpr int kMaxStreams = 1024;
constexpr int kMaxHeaderBytes = 8 << 10;  // of each frame of a call's headers; the same as gRPC's default
// A client may send a PING this often, for its own keepalive. The connection ends at the third one that comes earlier.
constexpr int kMinPingIntervalMs = 20'000;
constexpr int kMaxEarlyPings = 2;
// Connections of one listener that have sent no byte. If half of the descriptors are fewer, half of them: newer
// connections may have these at any time.
constexpr uint64_t kMaxSilent = 1024;
// Each silent connection is kept for at least this time, however fast others connect. The listener accepts half of
// kMaxSilent of them within it. The others wait in the kernel, and their first bytes, too.
constexpr std::chrono::milliseconds kSilentWindow{100};
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

// Whether there is a byte to read, or the end of the connection.
bool IsReadable(int fd) {
  char byte = 0;
  return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

uint64_t MaxDescriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::numeric_limits<uint64_t>::max();
  return limit.rlim_cur - std::min(kSpareDescriptors, limit.rlim_cur / 4);
}

}  // namespace

// A connection whose client has sent nothing yet.
struct RpcServer::Opening {
  Opening(boost::asio::io_context& context, int fd, std::function<void()> on_evicted)
      : socket(context, fd), timeout(context), place([this, on_evicted = std::move(on_evicted)] {
          Close();
          on_evicted();
        }) {}

  void Close() {
    boost::system::error_code ignored;
    socket.close(ignored);
  }

  boost::asio::posix::stream_descriptor socket;
  boost::asio::steady_timer timeout;
  OpeningPool::Place place;
};

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
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, static_cast<int>(kHandshakeTimeout.count()));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxHeaderBytes);
  AddKeepalive(options, builder);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(options.max_connection_idle)));
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
      max_silent_(std::clamp<uint64_t>(max_descriptors_ / 2, 2, kMaxSilent)),
      health_(options.ready),
      executor_(std::make_unique<AsioExecutor>()) {
  silent_.SetLimit(max_silent_);
}

absl::Status RpcServer::Listen(const std::vector<std::string>& addresses,
                               const std::shared_ptr<PassedSockets>& passed) {
  absl::Status status;
  // The rules of access tell the users apart.
  const AsioListener::Options listener_options{
      .unix_mode = acceptors_.empty() ? 0600U : 0666U, .tls = nullptr, .passed = passed};
  executor_->Await([&] {
    for (const std::string& address : addresses) {
      auto listener = AsioListener::Listen(
          *executor_, address, listener_options,
          [this, i = listeners_.size()](const AcceptedConnection& connection) { Take(i, connection); });
      status.Update(listener.status());
      if (!listener.ok()) return;
      addresses_.push_back(WithPort(address, (*listener)->address()));
      listeners_.push_back({.socket = *std::move(listener)});
    }
  });
  return status;
}

// The kernel takes the lowest number that is free for a descriptor. So a high number says that many are open.
void RpcServer::Take(size_t listener, const AcceptedConnection& connection) {
  const int fd = connection.release();
  if (fd < 0) return;
  if (static_cast<uint64_t>(fd) >= max_descriptors_ && !silent_.EndOldest(addresses_[listener])) {
    close(fd);
    if (on_refused_ != nullptr)
      on_refused_(connection.peer, "few file descriptors are left; raise the hard limit of RLIMIT_NOFILE");
    return;
  }
  GiveUpUnsent(fd, keepalive_);
  // Most clients send their first bytes at once. They need no place among the silent ones.
  if (IsReadable(fd)) return HandOver(fd, connection.client);
  AwaitFirstByte(listener, fd, connection);
}

void RpcServer::AwaitFirstByte(size_t listener, int fd, const AcceptedConnection& connection) {
  const auto opening = std::make_shared<Opening>(executor_->context(), fd, [this, peer = connection.peer] {
    if (on_refused_ != nullptr) on_refused_(peer, "it sent nothing, and newer connections need its place");
  });
  opening->timeout.expires_after(kHandshakeTimeout);
  opening->timeout.async_wait([opening](const boost::system::error_code& error) {
    if (!error) opening->Close();
  });
  opening->socket.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                             [this, opening, client = connection.client](const boost::system::error_code& error) {
                               opening->place.Leave();
                               opening->timeout.cancel();
                               openings_.erase(opening);
                               has_silent_ = !openings_.empty();
                               if (!error && opening->socket.is_open()) HandOver(opening->socket.release(), client);
                             });
  openings_.insert(opening);
  has_silent_ = true;
  silent_.Add(addresses_[listener], opening->place);
  CountSilent(listeners_[listener]);
}

void RpcServer::CountSilent(Listener& listener) {
  const TimePoint now = executor_->Now();
  if (now >= listener.window_end) {
    listener.window_end = now + kSilentWindow;
    listener.silent = 0;
  }
  if (++listener.silent < max_silent_ / 2) return;
  listener.socket->Pause(std::chrono::ceil<std::chrono::milliseconds>(listener.window_end - now));
}

void RpcServer::HandOver(int fd, std::optional<uint32_t> client) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters accepted;
  accepted.fd = fd;
  const auto of_user = client.has_value() ? acceptors_.find(*client) : acceptors_.end();
  (of_user == acceptors_.end() ? acceptor_ : of_user->second)->HandleNewConnection(&accepted);
}

absl::Status RpcServer::CheckRoom() const {
  if (has_silent_) return absl::OkStatus();  // a new client takes the place of one
  const int fd = eventfd(0, EFD_CLOEXEC);
  if (fd >= 0) close(fd);
  if (fd >= 0 && static_cast<uint64_t>(fd) < max_descriptors_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("all file descriptors below ", max_descriptors_,
                   " are in use, so new connections are closed; raise the hard limit of RLIMIT_NOFILE"));
}

void RpcServer::CloseListeners() {
  executor_->Await([this] {
    for (const Listener& listener : listeners_) listener.socket->Stop();
  });
  // A client that has just connected sends its first bytes now. Closing its connection would fail its call.
  const absl::Time until = absl::Now() + absl::FromChrono(kSilentWindow);
  while (has_silent_ && absl::Now() < until) absl::SleepFor(absl::Milliseconds(5));
  executor_->Await([this] {
    listeners_.clear();
    for (const auto& opening : openings_) opening->Close();
    openings_.clear();
  });
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
