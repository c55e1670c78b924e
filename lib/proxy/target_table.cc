#include "lib/proxy/target_table.h"

#include <chrono>

#include "absl/status/status.h"

namespace sluice {
namespace {

constexpr std::chrono::minutes kIdleTime{10};
constexpr std::chrono::seconds kUnreachedIdleTime{10};
constexpr std::chrono::seconds kSweepEvery{5};
constexpr std::chrono::seconds kMakeRoomEvery{1};

}  // namespace

absl::StatusOr<std::shared_ptr<Target>> TargetTable::Find(std::shared_ptr<const TargetPolicy> policy,
                                                          const std::string& name,
                                                          const std::shared_ptr<ClientGroup>& group) {
  const auto found = targets_.find({policy, name});
  if (found != targets_.end()) return found->second.target;
  if (absl::Status allowed = policy->CheckTarget(name); !allowed.ok()) return allowed;
  if (absl::Status admitted = Admit(*group); !admitted.ok()) return admitted;
  auto target = std::make_shared<Target>(link_, policy, tls_, name, look_ups_, group->index());
  auto charge = std::make_unique<ClientCharge>();
  groups_.Charge(group, ClientLimit::kTargets, *charge);
  targets_.emplace(std::pair(std::move(policy), name), Entry{target, std::move(charge), group->index()});
  return target;
}

// If another group has too many targets, and calls or connections use all of them, the limit is exceeded: to end these
// calls would take more from their clients than the targets are worth. Each group has at most its share then.
absl::Status TargetTable::Admit(const ClientGroup& group) {
  using Kind = FairShares::Verdict::Kind;
  const FairShares& shares = groups_.shares(ClientLimit::kTargets);
  FairShares::Verdict verdict = shares.Ask(group.index());
  if (verdict.kind == Kind::kYes) return absl::OkStatus();
  const bool has_room = MakeRoom(verdict.kind == Kind::kGivesWay ? verdict.from : group.index());
  if (has_room) verdict = shares.Ask(group.index());
  if (verdict.kind == Kind::kYes || verdict.kind == Kind::kGivesWay) return absl::OkStatus();
  return groups_.Refuse(group, ClientLimit::kTargets, verdict.kind);
}

// Without a sweep, a worker without calls would stay connected, or be tried, forever. An unreachable worker is dropped
// sooner, because each attempt to connect takes room on the link.
void TargetTable::Sweep() {
  if (link_.now() - swept_ < kSweepEvery) return;
  swept_ = link_.now();
  absl::erase_if(targets_, [&](const auto& entry) {
    const Target& target = *entry.second.target;
    const TimePoint::duration idle = swept_ - target.last_use();
    if (entry.second.target.use_count() > 1 || idle <= kUnreachedIdleTime) return false;
    return idle > kIdleTime || !target.connected();
  });
}

// Unreachable names from one client must not use up the table. After a search that finds none, wait: a search for each
// call costs too much.
bool TargetTable::MakeRoom(size_t group) {
  if (link_.now() < make_room_at_) return false;
  const auto evicted = absl::erase_if(targets_, [group](const auto& entry) {
    const auto& [target, charge, owner] = entry.second;
    return owner == group && target.use_count() == 1 && !target->connected();
  });
  if (evicted == 0) make_room_at_ = link_.now() + kMakeRoomEvery;
  return evicted > 0;
}

}  // namespace sluice
