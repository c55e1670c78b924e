#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "lib/net/executor.h"
#include "lib/net/opening_pool.h"
#include "lib/proxy/client_groups.h"
#include "lib/proxy/client_policies.h"
#include "lib/proxy/held_bytes.h"

namespace sluice {

struct ClientOrigin;
class ProxyLoop;

// The client of one connection, as the proxy sees it: its identity, its policy, and its group with the place of
// the connection there. There is one for each client connection. Used on the link's thread only.
class ClientMembership {
 public:
  // `give_way` ends the connection, later: another client needs its place. `proxy` and `origin` must outlive it.
  ClientMembership(ProxyLoop& proxy, const ClientOrigin& origin, std::function<void(const absl::Status&)> give_way);

  // The client is not known yet: the connection waits in the pool of its listener.
  void Wait();
  // The client is known. Takes a place in its group, once. Returns the errors of ClientGroups::Take.
  absl::Status Join(const StreamSocket& socket);
  void Leave();  // the connection ends
  // Counts the bytes that the client has sent, and that belong to no call or tunnel: the beginning of its protocol, or
  // of the headers of a call. They count as requests, those of strangers in a group of their own.
  void CountOpening(size_t bytes);
  void SetIdle(bool idle) { charge_.SetIdle(idle); }
  bool is_local() const;  // the client is on this host

  // Null before Join.
  const std::shared_ptr<ClientGroup>& group() const { return group_; }
  // The workers, the class and the share of the client, by the current options.
  const std::shared_ptr<const ClientPolicies::Policy>& policy(const StreamSocket& socket);
  // The name of the client by the kernel or TLS, after Join: "uid 1001", or a name of its certificate. Empty: nothing.
  const std::string& identity() const { return identity_; }

 private:
  ProxyLoop& proxy_;
  const ClientOrigin& origin_;
  std::shared_ptr<const ClientPolicies> policies_;  // contains policy_
  std::shared_ptr<const ClientPolicies::Policy> policy_;
  std::string identity_;
  std::shared_ptr<ClientGroup> group_;
  ClientCharge charge_;
  OpeningPool::Place opening_;
  HeldBytes::Holder opening_bytes_;
};

}  // namespace sluice
