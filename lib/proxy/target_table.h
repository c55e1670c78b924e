#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "lib/link/link_loop.h"
#include "lib/proxy/target.h"
#include "lib/proxy/target_policy.h"
#include "lib/tls/tls_context.h"

namespace sluice {

// The targets that the clients of a proxy name. Clients with different policies do not share a target. There is one for
// each proxy. Used on the link's thread only.
class TargetTable {
 public:
  // The link must outlive the table. Null `tls` means plaintext.
  TargetTable(LinkLoop& link, std::shared_ptr<TlsContext> tls) : link_(link), tls_(std::move(tls)) {}

  // Above `max_targets`, drops targets that nothing uses and that are not connected. Returns ResourceExhausted if there
  // is none, and the errors of TargetPolicy::CheckTarget.
  absl::StatusOr<std::shared_ptr<Target>> Find(std::shared_ptr<const TargetPolicy> policy, const std::string& name,
                                               size_t max_targets);
  // Drops targets that were not used for a while, at most once in 5 s.
  void Sweep();
  void Clear() { targets_.clear(); }
  size_t size() const { return targets_.size(); }

 private:
  void MakeRoom();

  LinkLoop& link_;
  const std::shared_ptr<TlsContext> tls_;
  absl::flat_hash_map<std::pair<std::shared_ptr<const TargetPolicy>, std::string>, std::shared_ptr<Target>> targets_;
  TimePoint swept_;
  TimePoint make_room_at_;  // MakeRoom does nothing before this time
};

}  // namespace sluice
