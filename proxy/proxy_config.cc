#include "proxy/proxy_config.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/cli/config_reload.h"
#include "lib/cli/connection_time.h"
#include "lib/cli/link_options.h"
#include "lib/cli/tls_flags.h"
#include "lib/cli/units.h"
#include "lib/grpc_wire/metadata_fields.h"
#include "lib/net/host_port.h"

namespace sluice {
namespace {

constexpr int kOctal = 8;

// Estimates of what one of each takes: 18.5 KB of an idle connection were measured. Responses may take twice
// limits.held for a while, and requests take as much again.
constexpr int64_t kConnectionBytes = 20 << 10;
constexpr int64_t kCallBytes = 6 << 10;
constexpr int64_t kHeldTimes = 3;
constexpr int64_t kMinHeldBytes = 64 << 10;

constexpr absl::string_view kTcpPrefix = "tcp:";
constexpr absl::string_view kRedirectedPrefix = "redirected:";
constexpr absl::string_view kTlsPrefix = "tls:";

ProxyServer::Listener MakeListener(absl::string_view address, const std::string& route) {
  using Kind = ProxyServer::Listener::Kind;
  const Kind kind = absl::ConsumePrefix(&address, kTcpPrefix)          ? Kind::kTunnel
                    : absl::ConsumePrefix(&address, kRedirectedPrefix) ? Kind::kRedirected
                                                                       : Kind::kRequests;
  const bool tls = absl::ConsumePrefix(&address, kTlsPrefix);
  return {.address = std::string(address), .route = route, .tls = tls, .kind = kind};
}

absl::Status ParseListeners(const v1::ProxyConfig& config, ProxyServer::Options& options) {
  for (const std::string& address : config.listen()) options.listeners.push_back(MakeListener(address, ""));
  for (int i = 0; i < config.routes_size(); ++i) {
    const v1::ProxyRoute& route = config.routes(i);
    if (route.listen().empty() || route.workers().empty()) {
      return absl::InvalidArgumentError(absl::StrCat("routes[", i, "] needs both listen and workers"));
    }
    options.listeners.push_back(MakeListener(route.listen(), route.workers()));
  }
  return absl::OkStatus();
}

ListenerTls ParseListenerTls(const v1::ProxyListenerTls& config) {
  return {.files = {.certificate_file = config.certificate(),
                    .key_file = config.key(),
                    .client_ca_file = config.client_ca(),
                    .crl_file = config.crl()},
          .client_names = {config.client_names().begin(), config.client_names().end()}};
}

// A third of three quarters of the memory for each.
void DeriveLimits(int64_t memory_bytes, ProxyOptions& options) {
  const int64_t part = memory_bytes / 4;
  options.max_connections = std::clamp<size_t>(part / kConnectionBytes, 1, options.max_connections);
  options.max_calls = std::clamp<size_t>(part / kCallBytes, 1, options.max_calls);
  options.max_held_bytes = std::clamp<int64_t>(part / kHeldTimes, kMinHeldBytes, options.max_held_bytes);
}

absl::Status ParseLimits(const v1::ProxyLimits& config, ProxyOptions& options) {
  if (config.has_connections()) options.max_connections = config.connections();
  if (config.has_calls()) options.max_calls = config.calls();
  if (config.has_targets()) options.max_targets = config.targets();
  absl::Duration opening = absl::FromChrono(options.opening_timeout);
  absl::Duration stall = absl::FromChrono(options.client_stall_timeout);
  absl::Status status = ParseField("limits.held", config.held(), ParseByteSize, options.max_held_bytes);
  status.Update(ParseField("limits.opening_timeout", config.opening_timeout(), ParseDuration, opening));
  status.Update(ParseField("limits.client_stall_timeout", config.client_stall_timeout(), ParseDuration, stall));
  options.opening_timeout = absl::ToChronoNanoseconds(opening);
  options.client_stall_timeout = absl::ToChronoNanoseconds(stall);
  return status;
}

absl::Status ParseShare(const v1::ProxyClients& config, const std::string& held_field, ClientShare& share) {
  share.name = config.group();
  if (config.has_weight()) share.weight = config.weight();
  const v1::ProxyClientLimits& limits = config.limits();
  if (limits.has_connections()) share.connections = limits.connections();
  if (limits.has_calls()) share.calls = limits.calls();
  if (limits.has_targets()) share.targets = limits.targets();
  return ParseField(held_field, limits.held(), ParseByteSize, share.held_bytes);
}

absl::Status ParseRetries(const v1::ProxyRetries& config, ProxyOptions& options) {
  constexpr double kMostTokens = 1000;
  if (config.has_max_attempts()) options.max_attempts = config.max_attempts();
  if (config.has_max_tokens()) options.retry_throttle.max_tokens = config.max_tokens();
  if (config.has_token_ratio()) options.retry_throttle.token_ratio = config.token_ratio();
  if (options.max_attempts < 1 || options.max_attempts > kMostAttempts) {
    return absl::InvalidArgumentError(
        absl::StrCat("retries.max_attempts: ", options.max_attempts, " is outside of 1 to ", kMostAttempts));
  }
  const RetryThrottle::Options& throttle = options.retry_throttle;
  if (!(throttle.max_tokens > 0 && throttle.max_tokens <= kMostTokens)) {
    return absl::InvalidArgumentError(
        absl::StrCat("retries.max_tokens: ", throttle.max_tokens, " is not above 0 and at most ", kMostTokens));
  }
  if (throttle.token_ratio > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("retries.token_ratio: ", throttle.token_ratio, " is not above 0"));
}

absl::Status ParseTunnels(const v1::ProxyTunnels& config, ProxyOptions& options) {
  if (config.has_to_workers()) options.pass_worker_tunnels = config.to_workers();
  if (config.has_to_others()) options.pass_tunnels = options.pass_tunnels_from_loopback = config.to_others();
  if (config.has_scheduled()) options.schedule_worker_tunnels = config.scheduled();
  options.worker_tunnel_class = config.traffic_class();
  if (config.has_proxy_protocol_version()) options.proxy_protocol_version = config.proxy_protocol_version();
  absl::Duration half_closed = absl::FromChrono(options.half_closed_timeout);
  absl::Duration idle = absl::FromChrono(options.tunnel_idle_timeout);
  absl::Duration stall = absl::FromChrono(options.tunnel_stall_timeout);
  absl::Status status =
      ParseField("tunnels.receive_window", config.receive_window(), ParseByteSize, options.worker_tunnel_receive_bytes);
  status.Update(ParseField("tunnels.half_closed_timeout", config.half_closed_timeout(), ParseDuration, half_closed));
  status.Update(ParseField("tunnels.idle_timeout", config.idle_timeout(), ParseDuration, idle));
  status.Update(ParseField("tunnels.stall_timeout", config.stall_timeout(), ParseDuration, stall));
  options.half_closed_timeout = absl::ToChronoNanoseconds(half_closed);
  options.tunnel_idle_timeout = absl::ToChronoNanoseconds(idle);
  options.tunnel_stall_timeout = absl::ToChronoNanoseconds(stall);
  return status;
}

absl::Status ParseWorkerHeader(const std::string& name, ProxyOptions& options) {
  options.worker_header = name;
  if (name.empty() || (IsMetadataKey(name) && !IsProtocolField(name))) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("worker_header is \"", name, "\"; it must be the name of metadata, in lower case"));
}

absl::Status ParseSocketMode(const std::string& text, uint32_t& mode) {
  if (text.empty()) return absl::OkStatus();
  uint32_t parsed = 0;
  const bool octal = text.find_first_not_of("01234567") == std::string::npos && text.size() <= 4;
  if (octal) parsed = static_cast<uint32_t>(std::stoul(text, nullptr, kOctal));
  if (octal && parsed <= 0777) {
    mode = parsed;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("socket_mode is \"", text, "\"; it must be octal, 0 to 0777"));
}

absl::Status CheckAdmin(const std::string& address) {
  if (address.empty()) return absl::OkStatus();
  const absl::Status parsed = ParseHostPort(address).status();
  return parsed.ok() ? parsed : absl::InvalidArgumentError(absl::StrCat("admin: ", parsed.message()));
}

// Returns the part of the config that cannot change at runtime.
v1::ProxyConfig WithoutReloadable(v1::ProxyConfig config) {
  config.clear_workers();
  config.clear_clients();
  config.clear_link();
  config.clear_worker_header();
  config.clear_max_connection_age();
  config.clear_tunnels();
  config.clear_limits();
  config.clear_log_level();
  // A missing schedule is a schedule without a policy.
  ClearReloadable(*config.mutable_schedule());
  return config;
}

}  // namespace

absl::Status CheckReloadable(const v1::ProxyConfig& before, const v1::ProxyConfig& after) {
  // No patterns are all private networks. A file that has lost its patterns must not open all of them.
  if (after.workers().empty() && !before.workers().empty()) {
    return absl::FailedPreconditionError(
        "workers is empty, and was not before; give [\"private\"] if all private networks are meant");
  }
  return CheckSameButReloadable(WithoutReloadable(before), WithoutReloadable(after));
}

std::string AddressInConfig(const ProxyServer::Listener& listener, absl::string_view address) {
  using Kind = ProxyServer::Listener::Kind;
  return absl::StrCat(listener.kind == Kind::kTunnel ? kTcpPrefix : "",
                      listener.kind == Kind::kRedirected ? kRedirectedPrefix : "", listener.tls ? kTlsPrefix : "",
                      address);
}

int64_t MemoryOfLimits(const ProxyOptions& options) {
  return static_cast<int64_t>(options.max_connections) * kConnectionBytes +
         static_cast<int64_t>(options.max_calls) * kCallBytes + options.max_held_bytes * kHeldTimes;
}

absl::StatusOr<ProxyProgramOptions> ParseProxyConfig(const v1::ProxyConfig& config,
                                                     std::optional<int64_t> memory_bytes) {
  ProxyProgramOptions options;
  if (memory_bytes.has_value()) DeriveLimits(*memory_bytes, options.server.proxy);
  options.admin = config.admin();
  options.access_log = config.access_log().file();
  ProxyServer::Options& server = options.server;
  absl::Status status = ParseListeners(config, server);
  status.Update(CheckAdmin(config.admin()));
  server.workers.assign(config.workers().begin(), config.workers().end());
  for (const v1::ProxyClients& clients : config.clients()) {
    server.clients.push_back({.users = {clients.uids().begin(), clients.uids().end()},
                              .names = {clients.names().begin(), clients.names().end()},
                              .workers = {clients.workers().begin(), clients.workers().end()},
                              .traffic_class = clients.traffic_class()});
    const std::string field = absl::StrCat("clients[", server.clients.size() - 1, "].limits.held");
    status.Update(ParseShare(clients, field, server.clients.back().share));
  }
  server.client_users.assign(config.client_uids().begin(), config.client_uids().end());
  status.Update(ParseSocketMode(config.socket_mode(), server.socket_mode));
  status.Update(ParseLimits(config.limits(), server.proxy));
  status.Update(ParseRetries(config.retries(), server.proxy));
  status.Update(ParseWorkerHeader(config.worker_header(), server.proxy));
  status.Update(ParseTunnels(config.tunnels(), server.proxy));
  if (config.access_log().has_sample()) server.proxy.access_sample = config.access_log().sample();
  server.proxy_protocol.assign(config.tunnels().proxy_protocol().begin(), config.tunnels().proxy_protocol().end());
  absl::StatusOr<TlsSettings> tls = ParseTlsConfig(config.tls(), TlsRole::kClient);
  status.Update(tls.status());
  if (tls.ok()) server.tls = std::move(tls->client);
  if (config.has_listener_tls()) server.listener_tls = ParseListenerTls(config.listener_tls());
  absl::StatusOr<Link::Options> link = ParseLinkOptions(config, "sluice-proxy");
  status.Update(link.status());
  if (link.ok()) options.link = *std::move(link);
  status.Update(ParseField("drain_timeout", config.drain_timeout(), ParseDuration, options.drain_timeout));
  absl::Duration age;
  status.Update(ParseConnectionTime("max_connection_age", config.max_connection_age(), age));
  server.proxy.max_connection_age = absl::ToChronoNanoseconds(age);
  server.proxy.max_connection_age_grace = absl::ToChronoNanoseconds(options.drain_timeout);
  status.Update(ParseField("drain_delay", config.drain_delay(), ParseDuration, options.drain_delay));
  status.Update(ParseField("reload_interval", config.reload_interval(), ParseDuration, options.reload_interval));
  if (status.ok()) status = ProxyServer::Validate(server, options.link.schedule);
  if (!status.ok()) return status;
  return options;
}

}  // namespace sluice
