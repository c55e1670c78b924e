#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sluice/link.h"
#include "sluice/v1/config.pb.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/proxy/proxy_server.h"

namespace sluice {

// The options of sluice-proxy.
struct ProxyProgramOptions {
  std::string admin;  // host:port; empty: no admin server
  Link::Options link;
  ProxyServer::Options server;
  std::string access_log;  // path; empty: none
  absl::Duration drain_timeout = absl::Seconds(10);
  absl::Duration drain_delay = absl::ZeroDuration();
  absl::Duration reload_interval = absl::Seconds(2);  // 0: the config file is not checked for changes
};

// Checks the config as far as possible without starting anything. Returns InvalidArgument with the field. Limits that
// the config does not have follow from `memory_bytes`, the memory limit of the process, if that is below what the
// defaults may take: together they take at most three quarters of it.
absl::StatusOr<ProxyProgramOptions> ParseProxyConfig(const v1::ProxyConfig& config,
                                                     std::optional<int64_t> memory_bytes = std::nullopt);

// The memory that the limits of a proxy may take, without the program itself.
int64_t MemoryOfLimits(const ProxyOptions& options);

// The address of a listener as it is written in the config, with the actual port of `address`.
std::string AddressInConfig(const ProxyServer::Listener& listener, absl::string_view address);

// Returns FailedPrecondition with the fields, and their old and new values, if `after` cannot replace `before` in a
// running proxy.
absl::Status CheckReloadable(const v1::ProxyConfig& before, const v1::ProxyConfig& after);

}  // namespace sluice
