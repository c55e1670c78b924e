#include "lib/proxy/target_table.h"

#include <chrono>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr std::chrono::minutes kIdleTime{10};
constexpr std::chrono::seconds kUnreachedIdleTime{10};
constexpr std::chrono::seconds kSweepEvery{5};
constexpr std::chrono::seconds kMakeRoomEvery{1};

}  // namespace

absl::StatusOr<std::shared_ptr<Target>> TargetTable::Find(std::shared_ptr<const TargetPolicy> policy,
                                                          const std::string& name, size_t max_targets) {
  const auto found = targets_.find({policy, name});
  if (found != targets_.end()) return found->second;
  if (absl::Status allowed = policy->CheckTarget(name); !allowed.ok()) return allowed;
  if (targets_.size() >= max_targets) MakeRoom();
  if (targets_.size() >= max_targets) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", targets_.size(), " targets in use, and max_targets is ", max_targets));
  }
  auto target = std::make_shared<Target>(link_, policy, tls_, name);
  targets_.emplace(std::pair(std::move(policy), name), target);
  return target;
}

// Without a sweep, a worker without calls would stay connected, or be tried, forever. An unreachable worker is dropped
// sooner, because each attempt to connect takes room on the link.
void TargetTable::Sweep() {
  if (link_.now() - swept_ < kSweepEvery) return;
  swept_ = link_.now();
  absl::erase_if(targets_, [&](const auto& entry) {
    const Target& target = *entry.second;
    const TimePoint::duration idle = swept_ - target.last_use();
    if (entry.second.use_count() > 1 || idle <= kUnreachedIdleTime) return false;
    return idle > kIdleTime || !target.connected();
  });
}

// Unreachable names from one client must not use up the table. After a search that finds none, wait: a search for each
// call costs too much.
void TargetTable::MakeRoom() {
  if (link_.now() < make_room_at_) return;
  const auto evicted = absl::erase_if(
      targets_, [](const auto& entry) { return entry.second.use_count() == 1 && !entry.second->connected(); });
  if (evicted == 0) make_room_at_ = link_.now() + kMakeRoomEvery;
}

}  // namespace sluice
