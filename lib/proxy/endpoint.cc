#include "sluice/endpoint.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "lib/net/worker_address.h"
#include "lib/proxy/proxy_server.h"

namespace sluice {
namespace {

// The application itself chooses the workers, so every possible worker is permitted.
std::vector<std::string> AnyWorker() {
  return {"0.0.0.0/0", "::/0", "127.0.0.0/8", "::1", "unix:*", "unix-abstract:*"};
}

std::string OwnName() {
  std::random_device random;
  return absl::StrCat("unix-abstract:sluice-", getpid(), "-", absl::Hex(random()), absl::Hex(random()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Endpoint>> Endpoint::Create(std::shared_ptr<Link> link) {
  return Create(std::move(link), Options());
}

absl::StatusOr<std::unique_ptr<Endpoint>> Endpoint::Create(std::shared_ptr<Link> link, Options options) {
  if (link == nullptr) return absl::InvalidArgumentError("link is null");
  if (options.listen.empty()) options.listen = OwnName();
  if (!IsUnixAddress(options.listen)) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen is \"", options.listen, "\"; it must be unix:PATH or unix-abstract:NAME"));
  }
  auto server = ProxyServer::Start(std::move(link), {.listeners = {{.address = options.listen, .route = ""}},
                                                     .workers = AnyWorker(),
                                                     .tls = std::move(options.tls),
                                                     .client_users = {geteuid()},
                                                     .socket_mode = 0600,
                                                     .on_access = std::move(options.on_access)});
  if (!server.ok()) return server.status();
  return std::unique_ptr<Endpoint>(new Endpoint(*std::move(server)));
}

Endpoint::Endpoint(std::unique_ptr<ProxyServer> server) : server_(std::move(server)) {}
Endpoint::~Endpoint() = default;

const std::string& Endpoint::target() const {
  return server_->addresses().front();
}

}  // namespace sluice
