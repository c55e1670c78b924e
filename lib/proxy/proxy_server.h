#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/link.h"
#include "sluice/tls_options.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/net/asio_listener.h"
#include "lib/proxy/client_policies.h"
#include "lib/proxy/proxy_event.h"
#include "lib/proxy/proxy_loop.h"
#include "lib/proxy/proxy_metrics.h"
#include "lib/proxy/redirect_loops.h"
#include "lib/tls/tls_context.h"

namespace sluice {

// A proxy on a link: its listeners, and a ProxyLoop on the link's thread. There is one for each sluice-proxy, and one
// for each Endpoint. Thread-safe.
class ProxyServer {
 public:
  struct Listener {
    std::string address;  // host:port, unix:PATH or unix-abstract:NAME
    std::string route;    // the worker, or the name of workers, that it serves; empty: clients name their workers
    bool tls = false;     // clients use TLS with a certificate: see listener_tls. For host:port only
    // kTunnel: each connection is a tunnel to `route`. kRedirected: rules of netfilter lead connections here, and each
    // is a tunnel to the address to which its client has connected; there is no `route`.
    enum class Kind { kRequests, kTunnel, kRedirected };
    Kind kind = Kind::kRequests;

    friend bool operator==(const Listener&, const Listener&) = default;
  };
  struct Options {
    std::vector<Listener> listeners;             // at least one
    std::vector<std::string> workers;            // patterns: see TargetPolicy
    std::vector<ClientPolicies::Group> clients;  // groups of clients that may call other workers
    std::vector<std::string> proxy_protocol;     // patterns of workers whose tunnels begin with a ProxyHeader
    std::optional<TlsOptions> tls;               // for connections to workers; absent: plaintext
    std::optional<ListenerTls> listener_tls;     // for the listeners with TLS; required if there is one
    // Uids of users whose processes may connect to Unix sockets. Default: any user that the mode of the socket permits;
    // if the TLS options have a certificate, only the user of this process.
    std::vector<uint32_t> client_users;
    uint32_t socket_mode = 0660;  // of Unix sockets in the file system
    std::string admin;            // the address of the process's admin server, "IP:port", which is no worker; or empty
    ProxyOptions proxy;
    std::shared_ptr<PassedSockets> passed;  // as AsioListener::Options::passed
    // Called on the link's thread; all may be null, and only Start uses them. on_listener_tls reports why new files of
    // listener_tls are not used, and reports OK once they are.
    OnProxyEvent on_event;
    OnAccessRecord on_access;  // for the access log; must not block
    std::function<void(const absl::Status&)> on_listener_tls;
  };

  // Returns the errors that Start would return, starts nothing, and reads no file. An InvalidArgument names the field
  // of sluice-proxy's config. The reason is one of these:
  //   - an option is out of bounds;
  //   - a proxy cannot follow the policy of the link: batches requires all calls of a fan-out beforehand;
  //   - a TCP listener has no TLS, and the TLS options have a certificate: any client could call workers in its name.
  static absl::Status Validate(const Options& options, const ScheduleOptions& schedule);

  // Returns after the proxy has started to serve. Returns Unavailable if it cannot listen on an address, and the errors
  // of ValidateTls and ValidateListenerTls.
  static absl::StatusOr<std::unique_ptr<ProxyServer>> Start(std::shared_ptr<Link> link, Options options);
  ~ProxyServer();  // ends all calls
  ProxyServer(const ProxyServer&) = delete;
  ProxyServer& operator=(const ProxyServer&) = delete;

  // In the order of the options, with the actual ports.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Applies new workers and limits to connections and calls that begin later. Returns InvalidArgument as Validate does,
  // and also if listeners, users, modes or TLS options differ; then nothing changes. Calls must not overlap.
  absl::Status Reconfigure(Options options);

  // Accepts no further connections, asks clients to reconnect to another proxy, and waits for at most `timeout` until
  // their calls have ended. Returns the number of calls that have not ended.
  size_t Drain(absl::Duration timeout);

 private:
  explicit ProxyServer(std::shared_ptr<Link> link);
  absl::Status Open(ClientPolicies policies);
  AsioListener::OnAccept OnAccept(const Listener& listener);
  void LookAtListenerTls();
  bool MayConnect(const AcceptedConnection& connection) const;

  const std::shared_ptr<Link> link_;
  Options options_;  // written on the link's thread after Start
  ProxyMetrics metrics_;
  std::vector<std::string> addresses_;
  // Used on the link's thread only.
  RedirectLoops redirect_loops_;
  std::unique_ptr<ProxyLoop> loop_;
  std::shared_ptr<TlsContext> listener_tls_;  // null: no listener has TLS
  absl::Status listener_tls_status_;          // as last reported
  std::vector<std::unique_ptr<AsioListener>> listeners_;
};

}  // namespace sluice
