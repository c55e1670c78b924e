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
#include "lib/proxy/proxy_core.h"
#include "lib/proxy/proxy_metrics.h"
#include "lib/tls/tls_context.h"

namespace sluice {

// A proxy on a link: its listeners, and a ProxyCore on the link's thread. There is one for each sluice-proxy, and one
// for each Endpoint. Thread-safe.
class ProxyServer {
 public:
  struct Listener {
    std::string address;  // host:port, unix:PATH or unix-abstract:NAME
    std::string route;    // the worker, or the name of workers, that it stands for; empty: clients name theirs
    bool tls = false;     // clients speak TLS, and show a certificate: see listener_tls. Of host:port only

    friend bool operator==(const Listener&, const Listener&) = default;
  };
  struct Options {
    std::vector<Listener> listeners;             // at least one
    std::vector<std::string> workers;            // patterns: see TargetPolicy
    std::vector<ClientPolicies::Group> clients;  // who may call other workers
    std::optional<TlsOptions> tls;               // towards workers; absent: plaintext
    std::optional<ListenerTls> listener_tls;     // of the listeners with TLS; given if there is one
    // Users whose processes may connect to Unix sockets, by number. Default: any user that the mode of the socket lets
    // in; if the TLS options have a certificate, the user of this process.
    std::vector<uint32_t> client_users;
    uint32_t socket_mode = 0660;  // of Unix sockets in the file system
    ProxyOptions proxy;
    // Told on the link's thread; both may be null, and are taken by Start alone. The first: why a client got no
    // connection, "10.0.0.7:41234 showed no certificate". The second: that new files of listener_tls are not taken, and
    // why; OK once they are.
    std::function<void(const absl::Status&)> on_handshake_failed;
    std::function<void(const absl::Status&)> on_listener_tls;
  };

  // Returns what Start would return, and starts nothing. Returns InvalidArgument that names the field, as the config of
  // sluice-proxy has it, for options that are out of bounds, for a discipline of the link that a proxy cannot follow
  // (batches needs to know a whole fan-out), and for a listener on TCP without TLS if the TLS options have a
  // certificate: anybody could call workers in its name. Reads no file.
  static absl::Status Validate(const Options& options, Discipline discipline);

  // Serves when it returns. Returns Unavailable if it cannot listen on an address, and the errors of ValidateTls and
  // ValidateListenerTls.
  static absl::StatusOr<std::unique_ptr<ProxyServer>> Start(std::shared_ptr<Link> link, Options options);
  ~ProxyServer();  // ends all calls
  ProxyServer(const ProxyServer&) = delete;
  ProxyServer& operator=(const ProxyServer&) = delete;

  // In the order of the options, with the ports that were found.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Takes over the workers and the limits, for what begins from now on. Returns InvalidArgument as Validate does, and
  // for other listeners, users, modes or TLS options; then nothing changes. Calls must not overlap.
  absl::Status Reconfigure(Options options);

  // Takes no more connections, asks clients to go elsewhere, and waits until their calls have ended, for at most
  // `timeout`. Returns the number of calls that had not.
  size_t Drain(absl::Duration timeout);

 private:
  explicit ProxyServer(std::shared_ptr<Link> link);
  absl::Status Open(ClientPolicies policies);
  AsioListener::OnAccept OnAccept(const Listener& listener);
  void LookAtListenerTls();
  bool MayConnect(const AcceptedConnection& connection) const;

  const std::shared_ptr<Link> link_;
  Options options_;  // written on the link's thread once it serves
  ProxyMetrics metrics_;
  std::vector<std::string> addresses_;
  // Used on the link's thread only.
  std::unique_ptr<ProxyCore> core_;
  std::shared_ptr<TlsContext> listener_tls_;  // null: no listener has TLS
  absl::Status listener_tls_status_;          // as it was told last
  std::vector<std::unique_ptr<AsioListener>> listeners_;
};

}  // namespace sluice
