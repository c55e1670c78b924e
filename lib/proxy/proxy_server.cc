#include "lib/proxy/proxy_server.h"

#include <algorithm>
#include <utility>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/types/span.h"
#include "lib/link/worker_address.h"

namespace sluice {
namespace {

bool LendsCertificate(const ProxyServer::Options& options) {
  return options.tls.has_value() && !options.tls->certificate_file.empty();
}

template <class Number>
absl::Status CheckBounds(absl::string_view field, Number value, Number least, Number most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, "; it must be ", least, " to ", most));
}

absl::Status CheckLimits(const ProxyOptions& options) {
  absl::Status status = CheckBounds<size_t>("limits.connections", options.max_connections, 1, 1 << 20);
  status.Update(CheckBounds<size_t>("limits.calls", options.max_calls, 1, 1 << 24));
  status.Update(CheckBounds<uint32_t>("limits.streams", options.max_streams, 1, 1 << 20));
  status.Update(CheckBounds<uint32_t>("limits.headers", options.max_header_bytes, 1024, 1 << 20));
  status.Update(CheckBounds<int64_t>("limits.held", options.max_held_bytes, 1 << 16, int64_t{1} << 40));
  status.Update(
      CheckBounds<int64_t>("limits.held_per_call", options.max_held_bytes_per_call, 1 << 14, int64_t{1} << 29));
  if (options.opening_timeout <= std::chrono::nanoseconds(0)) {
    status.Update(absl::InvalidArgumentError("limits.opening_timeout must be above 0"));
  }
  if (options.client_stall_timeout <= std::chrono::nanoseconds(0)) {
    status.Update(absl::InvalidArgumentError("limits.client_stall_timeout must be above 0"));
  }
  return status;
}

absl::Status CheckListener(const ProxyServer::Listener& listener, bool lends_certificate) {
  if (lends_certificate && !IsUnixAddress(listener.address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen: \"", listener.address,
                     "\" would let anybody who can connect call the workers with this proxy's certificate; with a "
                     "certificate it must be unix:PATH, where the kernel says who connects"));
  }
  if (listener.route.empty()) return absl::OkStatus();
  const absl::Status valid = ValidateWorkerAddress(listener.route);
  return valid.ok() ? valid : absl::InvalidArgumentError(absl::StrCat("routes: ", valid.message()));
}

bool Same(const std::vector<ProxyServer::Listener>& a, const std::vector<ProxyServer::Listener>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.address == other.address && one.route == other.route;
  });
}

}  // namespace

absl::Status ProxyServer::Validate(const Options& options, Discipline discipline) {
  if (discipline == Discipline::kBatches) {
    return absl::InvalidArgumentError(
        "policy is batches, which needs to know all calls of a fan-out beforehand; a proxy has grants, rolling and "
        "unscheduled");
  }
  if (options.listeners.empty()) return absl::InvalidArgumentError("listen is empty; give host:port or unix:PATH");
  const bool lends_certificate = LendsCertificate(options);
  absl::Status status = TargetPolicy::Create(options.workers).status();
  for (const Listener& listener : options.listeners) status.Update(CheckListener(listener, lends_certificate));
  status.Update(CheckBounds<uint32_t>("socket_mode", options.socket_mode, 0, 0777));
  status.Update(CheckLimits(options.proxy));
  return status;
}

absl::StatusOr<std::unique_ptr<ProxyServer>> ProxyServer::Start(std::shared_ptr<Link> link, Options options) {
  if (absl::Status valid = Validate(options, link->schedule_options().discipline); !valid.ok()) return valid;
  std::unique_ptr<ProxyServer> server(new ProxyServer(std::move(link)));
  const absl::StatusOr<TargetPolicy> policy = TargetPolicy::Create(options.workers);
  server->options_ = std::move(options);
  if (absl::Status opened = server->Open(*policy); !opened.ok()) return opened;
  return server;
}

ProxyServer::ProxyServer(std::shared_ptr<Link> link) : link_(std::move(link)), metrics_(link_->registry()) {}

absl::Status ProxyServer::Open(const TargetPolicy& policy) {
  absl::Status status;
  link_->Await([&](LinkCore& core) {
    std::shared_ptr<TlsContext> tls;
    if (options_.tls.has_value()) {
      absl::StatusOr<std::shared_ptr<TlsContext>> found = core.FindTls(*options_.tls);
      if (!found.ok()) {
        status = found.status();
        return;
      }
      tls = *std::move(found);
    }
    core_ = std::make_unique<ProxyCore>(core, policy, std::move(tls), options_.proxy, metrics_);
    std::vector<std::string> own_addresses;
    for (const Listener& listener : options_.listeners) {
      auto opened =
          AsioListener::Listen(link_->executor(), listener.address, options_.socket_mode, OnAccept(listener.route));
      if (!opened.ok()) {
        status = opened.status();
        return;
      }
      addresses_.push_back((*opened)->address());
      for (std::string& own : (*opened)->AllAddresses()) own_addresses.push_back(std::move(own));
      listeners_.push_back(*std::move(opened));
    }
    core_->SetOwnAddresses(std::move(own_addresses));
  });
  return status;
}

AsioListener::OnAccept ProxyServer::OnAccept(const std::string& route) {
  return [this, route](const AcceptedConnection& connection) {
    if (!MayConnect(connection)) {
      metrics_.CountConnection(ProxyConnection::kRefused);
      return;
    }
    core_->Accept({.route = route, .local = connection.local}, connection.start);
  };
}

bool ProxyServer::MayConnect(const AcceptedConnection& connection) const {
  const bool lends_certificate = LendsCertificate(options_);
  if (options_.client_users.empty()) return !lends_certificate || connection.client == geteuid();
  if (!connection.client.has_value()) return !lends_certificate;
  const auto& users = options_.client_users;
  return std::find(users.begin(), users.end(), *connection.client) != users.end();
}

absl::Status ProxyServer::Reconfigure(Options options) {
  if (absl::Status valid = Validate(options, link_->schedule_options().discipline); !valid.ok()) return valid;
  if (!Same(options.listeners, options_.listeners) || options.tls != options_.tls ||
      options.client_users != options_.client_users || options.socket_mode != options_.socket_mode) {
    return absl::InvalidArgumentError(
        "listen, routes, client_users, socket_mode and tls of a proxy that serves cannot change; restart it");
  }
  absl::StatusOr<TargetPolicy> policy = TargetPolicy::Create(options.workers);
  if (!policy.ok()) return policy.status();
  link_->Await([&](LinkCore&) { core_->Reconfigure(*std::move(policy), options.proxy); });
  options_ = std::move(options);
  return absl::OkStatus();
}

size_t ProxyServer::Drain(absl::Duration timeout) {
  const auto drained = std::make_shared<absl::Notification>();
  link_->Await([&](LinkCore&) {
    listeners_.clear();
    core_->Drain([drained] { drained->Notify(); });
  });
  drained->WaitForNotificationWithTimeout(timeout);
  size_t calls = 0;
  link_->Await([&](LinkCore&) { calls = core_->calls(); });
  return calls;
}

ProxyServer::~ProxyServer() {
  link_->Await([this](LinkCore&) {
    listeners_.clear();
    core_.reset();
  });
}

}  // namespace sluice
