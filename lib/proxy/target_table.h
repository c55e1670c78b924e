#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "lib/link/link_loop.h"
#include "lib/proxy/client_groups.h"
#include "lib/proxy/target.h"
#include "lib/proxy/target_policy.h"
#include "lib/tls/tls_context.h"

namespace sluice {

// The targets that the clients of a proxy name. Clients with different policies do not share a target. There is one for
// each proxy. Used on the link's thread only.
class TargetTable {
 public:
  // The link and the groups must outlive the table. Null `tls` means plaintext.
  TargetTable(LinkLoop& link, std::shared_ptr<TlsContext> tls, ClientGroups& groups)
      : link_(link), tls_(std::move(tls)), groups_(groups) {}

  // `group` is of the client, and has a new target in its share of limits.targets. Above the limit, drops targets that
  // nothing uses and that are not connected, of the group with the most for its weight. Returns ResourceExhausted if
  // there is none, and the errors of TargetPolicy::CheckTarget.
  absl::StatusOr<std::shared_ptr<Target>> Find(std::shared_ptr<const TargetPolicy> policy, const std::string& name,
                                               const std::shared_ptr<ClientGroup>& group);
  // Drops targets that were not used for a while, at most once in 5 s.
  void Sweep();
  void Clear() { targets_.clear(); }
  size_t size() const { return targets_.size(); }

 private:
  struct Entry {
    std::shared_ptr<Target> target;
    std::unique_ptr<ClientCharge> charge;
    size_t group;  // of the charge
  };

  absl::Status Admit(const ClientGroup& group);
  bool MakeRoom(size_t group);

  LinkLoop& link_;
  const std::shared_ptr<TlsContext> tls_;
  ClientGroups& groups_;
  const std::shared_ptr<LookUpTurns> look_ups_ = std::make_shared<LookUpTurns>();
  absl::flat_hash_map<std::pair<std::shared_ptr<const TargetPolicy>, std::string>, Entry> targets_;
  TimePoint swept_;
  TimePoint make_room_at_;  // MakeRoom does nothing before this time
};

}  // namespace sluice
