#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/proxy/client_groups.h"
#include "lib/proxy/target.h"
#include "lib/proxy/tunnel.h"

namespace sluice {

class ProxyLoop;

// Reaches the target of one CONNECT. There is one for each client that sent CONNECT, until it disconnects: it keeps the
// target in use. Used on the link's thread only.
//
// A CONNECT succeeds once a TCP connection to its target stands, so that a client with several addresses tries the next
// one. If a worker of the target is connected, that suffices. Otherwise this dials a connection, before the proxy can
// know what the client will send in the tunnel. If the tunnel is only forwarded, it uses the dialled connection. If it
// carries HTTP/2, the dialled connection ends, and the worker makes its own on the first call. Rejected: to give the
// dialled connection to the worker. Its handshakes take turns in the schedule, and its sockets would need a new owner,
// a different window and a late TLS; it would save one connection for the first CONNECT to a worker. Rejected: to wait
// for the worker's own connection. It begins HTTP/2 at once, and a server that expects TLS would log an error for each
// tunnel that is only forwarded.
class TargetDial final : private TargetWaiter {
 public:
  // OK: the target is reached. NotFound: its name cannot be looked up. Unavailable or DeadlineExceeded: no address
  // accepts a connection. Otherwise an error of TargetTable::Find or Target::Check.
  using OnDone = std::function<void(const absl::Status& reached)>;
  // Calls `on_done` once, at the end of a turn, and then `on_spoken`, if the worker speaks first: a database that
  // greets, and not a server of HTTP/2 that sends its SETTINGS. Neither may destroy the dial. `always`: dials even if a
  // worker of the target is connected. `group` is of the client. `proxy` must live until Stop.
  TargetDial(ProxyLoop& proxy, const std::shared_ptr<const TargetPolicy>& policy,
             const std::shared_ptr<ClientGroup>& group, const std::string& target, bool always, OnDone on_done,
             std::function<void()> on_spoken);
  ~TargetDial() override;
  TargetDial(const TargetDial&) = delete;
  TargetDial& operator=(const TargetDial&) = delete;

  void Stop();  // frees all but the target, and uses the proxy no more
  // The dialled connection, which is open and not read. Null if a worker was connected, or if it has ended.
  std::unique_ptr<Tunnel> TakeTunnel() { return std::move(tunnel_); }
  const Tunnel* tunnel() const { return tunnel_.get(); }                                           // the same
  std::string pattern() const { return target_ != nullptr ? target_->pattern() : std::string(); }  // as in Target
  std::string TakeSpoken() { return std::exchange(spoken_, {}); }  // bytes of the worker that were read

 private:
  void OnTargetStep() override;
  void Dial();
  void OnOpen();
  void OnBytes(absl::string_view bytes);
  void OnOver(const absl::Status& why, bool opened);
  void End(const absl::Status& reached);

  ProxyLoop& proxy_;
  const bool always_;
  const OnDone on_done_;
  const std::function<void()> on_spoken_;
  std::string spoken_;  // the first bytes of the worker
  std::shared_ptr<Target> target_;
  std::unique_ptr<Tunnel> tunnel_;
  const std::shared_ptr<const void> alive_ = std::make_shared<char>();  // expires with the dial
};

}  // namespace sluice
