#include "lib/proxy/client_membership.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/proxy/client_connection.h"
#include "lib/proxy/proxy_loop.h"

namespace sluice {

ClientMembership::ClientMembership(ProxyLoop& proxy, const ClientOrigin& origin,
                                   std::function<void(const absl::Status&)> give_way)
    : proxy_(proxy),
      origin_(origin),
      opening_(
          [give_way] { give_way(absl::ResourceExhaustedError("the client took too long to begin, and others wait")); }),
      opening_bytes_(
          [give_way] {
            give_way(
                absl::ResourceExhaustedError("limits.held is exceeded, and the client does not complete its headers"));
          },
          ClientGroups::kStrangers) {
  charge_.SetGiveWay(std::move(give_way));
}

void ClientMembership::CountOpening(size_t bytes) {
  proxy_.held_requests().Count(opening_bytes_, static_cast<int64_t>(bytes), proxy_.link().now());
}

void ClientMembership::Wait() {
  const size_t ended = proxy_.openings().Add(origin_.listener, opening_);
  for (size_t i = 0; i < ended; ++i) proxy_.metrics().CountConnection(ProxyConnection::kRefused);
}

absl::Status ClientMembership::Join(const StreamSocket& socket) {
  if (group_ != nullptr) return absl::OkStatus();
  opening_.Leave();
  identity_ = origin_.user.has_value() ? absl::StrCat("uid ", *origin_.user) : socket.PeerName();
  const ClientShare& share = policy(socket)->share;
  std::string name = share.name.empty() ? identity_ : share.name;
  if (name.empty()) name = origin_.listener.empty() ? "clients" : origin_.listener;
  std::shared_ptr<ClientGroup> group = proxy_.groups().Find(name, share);
  const absl::Status taken = proxy_.groups().Take(group, ClientLimit::kConnections, charge_);
  if (!taken.ok()) return taken;
  group_ = std::move(group);
  proxy_.held_requests().Move(opening_bytes_, group_->index(), proxy_.link().now());
  return taken;
}

void ClientMembership::Leave() {
  opening_.Leave();
  CountOpening(0);
  charge_.Return();
}

bool ClientMembership::is_local() const {
  return origin_.local;
}

const std::shared_ptr<const ClientPolicies::Policy>& ClientMembership::policy(const StreamSocket& socket) {
  if (policies_ != proxy_.policies()) {
    policies_ = proxy_.policies();
    const auto has_one_of = [&socket](const auto& names) { return socket.PeerHasOneOf(names); };
    policy_ = {policies_, &policies_->Find(origin_.user, has_one_of)};
    // New bounds hold for clients that are connected, too.
    if (group_ != nullptr && policy_->share.name == group_->name()) {
      proxy_.groups().Find(group_->name(), policy_->share);
    }
  }
  return policy_;
}

}  // namespace sluice
