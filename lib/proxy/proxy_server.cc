#include "lib/proxy/proxy_server.h"

#include <algorithm>
#include <utility>

#include <boost/asio/ip/address.hpp>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "absl/types/span.h"
#include "lib/net/host_port.h"
#include "lib/net/worker_address.h"

namespace sluice {
namespace {

// Bounds of a tunnel's window to a worker: a few packets, and the maximum of SO_RCVBUF.
constexpr int64_t kMinWindowBytes = 4096;
constexpr int64_t kMaxWindowBytes = int64_t{1} << 30;

constexpr char kNotRedirected[] =
    "no rule has redirected this connection here; let the client connect to its worker, and a rule of nftables or "
    "iptables (REDIRECT) lead the connection here";

bool LendsCertificate(const ProxyServer::Options& options) {
  return options.tls.has_value() && !options.tls->certificate_file.empty();
}

bool IsReachedFromOtherHosts(const std::string& listener) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort(listener);
  if (IsUnixAddress(listener) || !parsed.ok() || parsed->host == "localhost") return false;
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(parsed->host, error);
  return error || !address.is_loopback();
}

template <class Number>
absl::Status CheckBounds(absl::string_view field, Number value, Number least, Number most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, "; it must be ", least, " to ", most));
}

absl::Status CheckLimits(const ProxyOptions& options) {
  absl::Status status = CheckBounds<size_t>("limits.connections", options.max_connections, 1, 1 << 20);
  status.Update(CheckBounds<size_t>("limits.calls", options.max_calls, 1, 1 << 24));
  status.Update(CheckBounds<size_t>("limits.targets", options.max_targets, 1, 1 << 20));
  status.Update(CheckBounds<uint32_t>("limits.streams", options.max_streams, 1, 1 << 20));
  // No worker would receive more.
  status.Update(
      CheckBounds<uint32_t>("limits.headers", options.max_header_bytes, 1024, Http2Session::kMaxSentHeaderListBytes));
  status.Update(CheckBounds<int64_t>("limits.held", options.max_held_bytes, 1 << 16, int64_t{1} << 40));
  status.Update(
      CheckBounds<int64_t>("limits.held_per_call", options.max_held_bytes_per_call, 1 << 14, int64_t{1} << 29));
  if (options.worker_tunnel_receive_bytes != 0 && (options.worker_tunnel_receive_bytes < kMinWindowBytes ||
                                                   options.worker_tunnel_receive_bytes > kMaxWindowBytes)) {
    status.Update(
        absl::InvalidArgumentError(absl::StrCat("tunnels.receive_window is ", options.worker_tunnel_receive_bytes,
                                                "; it must be 0, or ", kMinWindowBytes, " to ", kMaxWindowBytes)));
  }
  status.Update(CheckBounds<uint32_t>("tunnels.proxy_protocol_version", options.proxy_protocol_version, 1, 2));
  if (!(options.access_sample >= 0 && options.access_sample <= 1)) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("access_log.sample is ", options.access_sample, "; it must be 0 to 1")));
  }
  if (options.opening_timeout <= std::chrono::nanoseconds(0)) {
    status.Update(absl::InvalidArgumentError("limits.opening_timeout must be above 0"));
  }
  if (options.client_stall_timeout <= std::chrono::nanoseconds(0)) {
    status.Update(absl::InvalidArgumentError("limits.client_stall_timeout must be above 0"));
  }
  return status;
}

absl::Status CheckListener(const ProxyServer::Listener& listener, bool lends_certificate) {
  if (listener.tls && IsUnixAddress(listener.address)) {
    return absl::InvalidArgumentError(absl::StrCat("listen: \"tls:", listener.address,
                                                   "\" must be tls:host:port; who connects to a Unix socket is known "
                                                   "from the kernel"));
  }
  using Kind = ProxyServer::Listener::Kind;
  const bool is_tunnel = listener.kind == Kind::kTunnel;
  if (is_tunnel && listener.route.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen: \"tcp:", listener.address, "\" has no workers; give it in routes"));
  }
  if (listener.kind == Kind::kRedirected &&
      (!listener.route.empty() || listener.tls || IsUnixAddress(listener.address))) {
    return absl::InvalidArgumentError(absl::StrCat("listen: \"redirected:", listener.address,
                                                   "\" must be redirected:host:port, in listen: the client has "
                                                   "chosen its worker"));
  }
  if (lends_certificate && !listener.tls && !is_tunnel && !IsUnixAddress(listener.address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen: \"", listener.address,
                     "\" would let anybody who can connect call the workers with this proxy's certificate "
                     "(tls.certificate); with that it must be unix:PATH, where the kernel says who connects, or "
                     "tls:host:port, where clients show a certificate"));
  }
  if (absl::Status valid = AsioListener::Validate(listener.address); !valid.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("listen: ", valid.message()));
  }
  if (listener.route.empty()) return absl::OkStatus();
  const absl::Status valid = ValidateWorkerAddress(listener.route);
  return valid.ok() ? valid : absl::InvalidArgumentError(absl::StrCat("routes: ", valid.message()));
}

absl::Status CheckListenerTls(const ProxyServer::Options& options) {
  const auto found = std::find_if(options.listeners.begin(), options.listeners.end(),
                                  [](const ProxyServer::Listener& listener) { return listener.tls; });
  if (options.listener_tls.has_value()) {
    absl::Status valid = ValidateListenerTls(*options.listener_tls, /*look_at_files=*/false);
    if (!valid.ok() || found != options.listeners.end()) return valid;
    return absl::InvalidArgumentError(
        "listener_tls is given and has no effect: no address in listen or routes is tls:host:port");
  }
  if (found == options.listeners.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("listen: \"tls:", found->address,
                                                 "\" without listener_tls; give its certificate, key and client_ca"));
}

// Reject clients that could never connect: they are a mistake in the config.
absl::Status CheckClients(const ProxyServer::Options& options) {
  for (size_t i = 0; i < options.clients.size(); ++i) {
    const ClientPolicies::Group& group = options.clients[i];
    if (!group.names.empty() && !options.listener_tls.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("clients[", i,
                                                     "].names is given without listener_tls, so that no "
                                                     "client shows a certificate"));
    }
    const auto& admitted = options.client_users;
    if (admitted.empty() && !LendsCertificate(options)) continue;
    for (const uint32_t user : group.users) {
      if (std::find(admitted.begin(), admitted.end(), user) != admitted.end()) continue;
      return absl::InvalidArgumentError(absl::StrCat("clients[", i, "].uids: ", user,
                                                     " is not in client_uids, so that "
                                                     "it may not connect"));
    }
  }
  return absl::OkStatus();
}

// Rejects changes that a running proxy cannot apply.
absl::Status CheckSame(const ProxyServer::Options& before, const ProxyServer::Options& after) {
  std::vector<absl::string_view> changed;
  if (after.listeners != before.listeners) changed.push_back("listen or routes");
  if (after.tls != before.tls) changed.push_back("tls");
  if (after.listener_tls != before.listener_tls) changed.push_back("listener_tls");
  if (after.client_users != before.client_users) changed.push_back("client_uids");
  if (after.socket_mode != before.socket_mode) changed.push_back("socket_mode");
  if (changed.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("needs a restart: ", absl::StrJoin(changed, ", "), " cannot change while the proxy serves"));
}

}  // namespace

absl::Status ProxyServer::Validate(const Options& options, const ScheduleOptions& schedule) {
  if (schedule.policy == SchedulePolicy::kBatches) {
    return absl::InvalidArgumentError(
        "policy is batches, which needs to know all calls of a fan-out beforehand; a proxy has grants, rolling and "
        "unscheduled");
  }
  if (options.listeners.empty()) return absl::InvalidArgumentError("listen is empty; give host:port or unix:PATH");
  const bool lends_certificate = LendsCertificate(options);
  absl::Status status = ClientPolicies::Create(options.workers, options.clients, options.proxy_protocol).status();
  status.Update(CheckClients(options));
  for (const Listener& listener : options.listeners) status.Update(CheckListener(listener, lends_certificate));
  status.Update(CheckListenerTls(options));
  status.Update(CheckBounds<uint32_t>("socket_mode", options.socket_mode, 0, 0777));
  status.Update(CheckLimits(options.proxy));
  if (const auto known = TrafficClassIndex(schedule.classes, options.proxy.worker_tunnel_class); !known.ok()) {
    status.Update(absl::InvalidArgumentError(absl::StrCat("tunnels.traffic_class: ", known.status().message())));
  }
  for (size_t i = 0; i < options.clients.size(); ++i) {
    const auto known = TrafficClassIndex(schedule.classes, options.clients[i].traffic_class);
    if (known.ok()) continue;
    status.Update(
        absl::InvalidArgumentError(absl::StrCat("clients[", i, "].traffic_class: ", known.status().message())));
  }
  return status;
}

absl::StatusOr<std::unique_ptr<ProxyServer>> ProxyServer::Start(std::shared_ptr<Link> link, Options options) {
  if (absl::Status valid = Validate(options, link->schedule_options()); !valid.ok()) return valid;
  std::unique_ptr<ProxyServer> server(new ProxyServer(std::move(link)));
  absl::StatusOr<ClientPolicies> policies =
      ClientPolicies::Create(options.workers, options.clients, options.proxy_protocol);
  server->options_ = std::move(options);
  if (absl::Status opened = server->Open(*std::move(policies)); !opened.ok()) return opened;
  return server;
}

ProxyServer::ProxyServer(std::shared_ptr<Link> link) : link_(std::move(link)), metrics_(link_->registry()) {}

absl::Status ProxyServer::Open(ClientPolicies policies) {
  absl::Status status;
  link_->Await([&](LinkLoop& loop) {
    std::shared_ptr<TlsContext> tls;
    if (options_.tls.has_value()) {
      absl::StatusOr<std::shared_ptr<TlsContext>> found = loop.workers().FindTls(*options_.tls);
      if (!found.ok()) {
        status = found.status();
        return;
      }
      tls = *std::move(found);
    }
    if (options_.listener_tls.has_value()) {
      absl::StatusOr<std::shared_ptr<TlsContext>> made = TlsContext::CreateForListener(*options_.listener_tls);
      if (!made.ok()) {
        status = made.status();
        return;
      }
      listener_tls_ = *std::move(made);
    }
    loop_ = std::make_unique<ProxyLoop>(loop, std::move(policies), std::move(tls), options_.proxy, metrics_);
    loop_->SetOnEvent(options_.on_event, options_.on_access);
    std::vector<std::string> own_addresses;
    for (const Listener& listener : options_.listeners) {
      auto opened = AsioListener::Listen(link_->executor(), listener.address,
                                         {.unix_mode = options_.socket_mode,
                                          .tls = listener.tls ? listener_tls_ : nullptr,
                                          .half_open = true,
                                          .redirected = listener.kind == Listener::Kind::kRedirected,
                                          .passed = options_.passed},
                                         OnAccept(listener));
      if (!opened.ok()) {
        status = opened.status();
        return;
      }
      addresses_.push_back((*opened)->address());
      for (std::string& own : (*opened)->AllAddresses()) own_addresses.push_back(std::move(own));
      listeners_.push_back(*std::move(opened));
    }
    if (!options_.admin.empty()) own_addresses.push_back(options_.admin);
    const bool remote = std::any_of(options_.listeners.begin(), options_.listeners.end(),
                                    [](const Listener& listener) { return IsReachedFromOtherHosts(listener.address); });
    loop_->SetOwnAddresses(std::move(own_addresses), remote ? HostAddresses() : std::vector<std::string>());
  });
  return status;
}

// A listener with TLS checks its clients during the handshake.
AsioListener::OnAccept ProxyServer::OnAccept(const Listener& listener) {
  return [this, listener](const AcceptedConnection& connection) {
    using Opening = ClientOrigin::Opening;
    ClientOrigin origin = {.route = listener.route,
                           .local = connection.local,
                           .peer = connection.peer,
                           .user = connection.client,
                           .listener = listener.address,
                           .tls = listener.tls};
    if (!listener.tls && !MayConnect(connection)) {
      metrics_.CountConnection(ProxyConnection::kRefused);
      loop_->Report({.client = origin.Name(), .why = "this user may not connect; add it to client_uids"});
      return;
    }
    if (listener.kind == Listener::Kind::kTunnel) origin.opening = Opening::kRoute;
    if (listener.kind == Listener::Kind::kRedirected) {
      origin.opening = Opening::kRedirected;
      origin.loops = &redirect_loops_;
      origin.route = connection.original;
      if (origin.route.empty()) {
        metrics_.CountConnection(ProxyConnection::kRefused);
        loop_->Report({.client = origin.Name(), .why = kNotRedirected});
        return;
      }
    }
    if (listener.tls) LookAtListenerTls();
    loop_->Accept(origin, connection.start);
  };
}

void ProxyServer::LookAtListenerTls() {
  (void)listener_tls_->Current();  // checks the files for changes, as the connection will do
  absl::Status status = listener_tls_->reload_status();
  if (status == listener_tls_status_) return;
  listener_tls_status_ = std::move(status);
  if (options_.on_listener_tls != nullptr) options_.on_listener_tls(listener_tls_status_);
}

bool ProxyServer::MayConnect(const AcceptedConnection& connection) const {
  const bool lends_certificate = LendsCertificate(options_);
  if (options_.client_users.empty()) return !lends_certificate || connection.client == geteuid();
  if (!connection.client.has_value()) return !lends_certificate;
  const auto& users = options_.client_users;
  return std::find(users.begin(), users.end(), *connection.client) != users.end();
}

absl::Status ProxyServer::Reconfigure(Options options) {
  if (absl::Status valid = Validate(options, link_->schedule_options()); !valid.ok()) return valid;
  if (absl::Status same = CheckSame(options_, options); !same.ok()) return same;
  absl::StatusOr<ClientPolicies> policies =
      ClientPolicies::Create(options.workers, options.clients, options.proxy_protocol);
  if (!policies.ok()) return policies.status();
  link_->Await([&](LinkLoop&) {
    loop_->Reconfigure(*std::move(policies), options.proxy);
    options_.workers = std::move(options.workers);
    options_.clients = std::move(options.clients);
    options_.proxy_protocol = std::move(options.proxy_protocol);
    options_.proxy = std::move(options.proxy);
  });
  return absl::OkStatus();
}

size_t ProxyServer::Drain(absl::Duration timeout) {
  const auto drained = std::make_shared<absl::Notification>();
  link_->Await([&](LinkLoop&) {
    for (const auto& listener : listeners_) listener->Stop();
  });
  link_->Await([&](LinkLoop&) {
    listeners_.clear();
    loop_->Drain([drained] { drained->Notify(); });
  });
  drained->WaitForNotificationWithTimeout(timeout);
  size_t calls = 0;
  link_->Await([&](LinkLoop&) { calls = loop_->calls(); });
  return calls;
}

ProxyServer::~ProxyServer() {
  link_->Await([this](LinkLoop&) {
    listeners_.clear();
    loop_.reset();
  });
}

}  // namespace sluice
