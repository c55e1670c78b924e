#pragma once

#include <functional>
#include <string>

namespace sluice {

// An event that an operator of a proxy must see in its log. Metrics count it, but do not name the client or the reason.
struct ProxyEvent {
  enum class Kind {
    kHandshakeFailed,  // a client could not connect by TLS
    kRefused,          // the proxy refused a connection, a CONNECT request or a call
    kWorkerTunnel,     // a tunnel to a worker is forwarded without a schedule
    kOtherTunnel,      // the same for a host that is not a worker
  };
  Kind kind = Kind::kRefused;
  std::string client;   // "10.0.0.7:41234", or "uid 1001" on a Unix socket
  std::string target;   // the worker or host that the client named; empty: none
  std::string why;      // the reason, with the remedy
  std::string carries;  // the protocol in a tunnel: "TLS"
};

// Called on the link's thread. May be null.
using OnProxyEvent = std::function<void(const ProxyEvent&)>;

}  // namespace sluice
