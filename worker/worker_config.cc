#include "worker/worker_config.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/cli/access_config.h"
#include "lib/cli/connection_time.h"
#include "lib/cli/tls_flags.h"
#include "lib/cli/units.h"
#include "lib/net/asio_listener.h"
#include "lib/net/host_port.h"

namespace sluice {
namespace {

constexpr absl::Duration kMaxTime = absl::Hours(1);  // a larger value is probably a wrong unit

absl::Status ParseListen(const v1::WorkerConfig& config, WorkerOptions& options) {
  if (config.listen().empty()) return absl::InvalidArgumentError("listen: no address is given; give IP:port");
  for (const std::string& address : config.listen()) {
    if (absl::Status valid = AsioListener::Validate(address); !valid.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("listen: ", valid.message()));
    }
    options.rpc_server.listen.push_back(address);
  }
  return absl::OkStatus();
}

absl::Status ParseTimes(const v1::WorkerConfig& config, WorkerOptions& options) {
  absl::Status status = ParseField("think_time", config.think_time(), ParseDuration, options.think_time.usual);
  status.Update(ParseField("think_tail.time", config.think_tail().time(), ParseDuration, options.think_time.tail));
  status.Update(ParseField("drain_timeout", config.drain_timeout(), ParseDuration, options.rpc_server.drain_timeout));
  status.Update(ParseField("drain_delay", config.drain_delay(), ParseDuration, options.rpc_server.drain_delay));
  status.Update(
      ParseConnectionTime("max_connection_age", config.max_connection_age(), options.rpc_server.max_connection_age));
  status.Update(
      ParseConnectionTime("max_connection_idle", config.max_connection_idle(), options.rpc_server.max_connection_idle));
  options.think_time.tail_share = config.think_tail().share();
  status.Update(ThinkTime::Validate(options.think_time));
  if (options.think_time.usual > kMaxTime || options.think_time.tail > kMaxTime ||
      options.rpc_server.drain_timeout > kMaxTime || options.rpc_server.drain_delay > kMaxTime)
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("think_time ", config.think_time(), ", think_tail.time ", config.think_tail().time(),
                     ", drain_timeout ", config.drain_timeout(), ", drain_delay ", config.drain_delay(),
                     ": each must be at most ", absl::FormatDuration(kMaxTime))));
  return status;
}

absl::Status ParseTls(const v1::WorkerConfig& config, WorkerOptions& options) {
  absl::StatusOr<TlsSettings> tls = ParseTlsConfig(config.tls(), TlsRole::kServer);
  if (tls.ok()) options.rpc_server.tls = std::move(tls->server);
  return tls.status();
}

absl::Status ParseAccess(const v1::WorkerConfig& config, WorkerOptions& options) {
  absl::StatusOr<AccessRules> access =
      sluice::ParseAccess(config.access(), options.rpc_server.tls, options.rpc_server.listen);
  if (access.ok()) options.rpc_server.access = *std::move(access);
  return access.status();
}

}  // namespace

absl::StatusOr<WorkerOptions> ParseWorkerConfig(const v1::WorkerConfig& config) {
  WorkerOptions options;
  options.data = config.data();
  options.admin = config.admin();
  options.rpc_server.reflection = config.reflection();
  if (config.has_probe()) options.probe = config.probe();
  absl::Status status = ParseListen(config, options);
  status.Update(ParseTimes(config, options));
  status.Update(ParseTls(config, options));
  if (status.ok()) status.Update(ParseAccess(config, options));
  if (options.data.empty())
    status.Update(absl::InvalidArgumentError("data: no folder is given; give the one with the worker-NNNN folders"));
  if (!options.admin.empty()) {
    absl::Status admin = ParseHostPort(options.admin).status();
    if (!admin.ok()) status.Update(absl::InvalidArgumentError(absl::StrCat("admin: ", admin.message())));
  }
  if (!status.ok()) return status;
  return options;
}

}  // namespace sluice
