#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "sluice/tls_options.h"

#include "absl/status/statusor.h"
#include "lib/http2/session.h"
#include "lib/link/scheduled_tunnel.h"
#include "lib/link/worker.h"
#include "lib/link/worker_table.h"
#include "lib/tls/tls_context.h"

namespace sluice {

class LinkLoop;

// The workers of a link that are in use, shared by all their users, and the TLS contexts of their connections. There is
// one for each LinkLoop, used on the link's thread only.
class WorkerPool {
 public:
  explicit WorkerPool(LinkLoop& loop);  // the loop must outlive the pool
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Returns the worker at this target. While a user holds the worker, the same arguments return the same worker. The
  // loop destroys it at the end of the turn in which its last user releases it. A user may therefore release it within
  // any event. Its certificate must have the name `server_name`, or, if that is empty, the name of the TLS options or
  // of the target.
  std::shared_ptr<Worker> Find(const std::string& target, std::shared_ptr<TlsContext> tls,
                               const std::string& server_name = "");
  // Returns the TLS context for these options: the same context for the same options. Errors as TlsContext::Create.
  absl::StatusOr<std::shared_ptr<TlsContext>> FindTls(const TlsOptions& options);
  bool uses_tls() const { return uses_tls_; }  // the link has had a worker with TLS
  // Options of future connections.
  Http2Session::Options& session_options() { return session_options_; }
  // The number of connections that one worker may have; see Worker.
  size_t max_connections() const { return max_connections_; }
  void set_max_connections(size_t connections) { max_connections_ = connections; }  // at least 1
  // The number of calls that wait for a stream of a connected worker.
  size_t CountWaitingForStream() const;

  // The connections of the workers, and of the tunnels that are watched, one slice after the other. A worker that stays
  // is in exactly one slice.
  using Key = std::tuple<std::string, std::string, TlsContext*>;  // target, server name, TLS
  struct TcpSlice {
    std::vector<WorkerTable::Socket> sockets;  // of open connections
    std::optional<Key> last;                   // empty behind the last slice
  };
  TcpSlice TcpSockets(const std::optional<Key>& after, size_t workers);
  // Looks at a tunnel that is not watched yet, from the next look on, until ScheduledTunnel::AppendTcp returns false.
  void Watch(ScheduledTunnel& tunnel) { tunnels_.push_back(tunnel); }
  bool watches_tunnels() const { return !tunnels_.empty() || !looked_tunnels_.empty(); }

  // For the loop.
  void CloseAll();
  bool has_unused() const { return !unused_.empty(); }
  void FreeUnused();

 private:
  struct KnownTls {
    std::weak_ptr<TlsContext> context;
    std::shared_ptr<SSL_CTX> files;  // when the pool last looked
  };

  void UseTls();
  // Ends connections whose workers a new revocation list names.
  void LookAtLists();
  void LookAtListsIn(TimePoint::duration time);

  LinkLoop& loop_;
  Http2Session::Options session_options_;
  size_t max_connections_ = 4;
  std::map<Key, std::weak_ptr<Worker>> workers_;
  ScheduledTunnel::List tunnels_;         // to be looked at
  ScheduledTunnel::List looked_tunnels_;  // in this look
  size_t sweep_at_ = 0;                   // number of entries, some for destroyed workers, at which to remove those
  // Without users. Destroyed at the end of the turn, because their functions may still be on the stack. An action for
  // the handshake of a worker may also be pending when its last user releases the worker.
  std::vector<std::unique_ptr<Worker>> unused_;
  std::vector<KnownTls> tls_contexts_;
  bool looks_at_lists_ = false;  // a timer is set
  bool checks_ = false;          // files have changed, and not all connections are checked
  std::optional<Key> checked_;   // the last worker that was
  bool uses_tls_ = false;
};

}  // namespace sluice
