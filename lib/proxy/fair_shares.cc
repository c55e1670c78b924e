#include "lib/proxy/fair_shares.h"

#include <algorithm>

namespace sluice {

FairShares::Group& FairShares::At(size_t group) {
  if (group >= groups_.size()) groups_.resize(group + 1);
  return groups_[group];
}

void FairShares::SetGroup(size_t group, double weight, int64_t cap) {
  Group& found = At(group);
  found.weight = weight;
  found.cap = cap;
}

void FairShares::Count(size_t group, int64_t change) {
  At(group).used += change;
  used_ += change;
}

double FairShares::PerWeight(size_t group, int64_t more) const {
  if (group >= groups_.size()) return static_cast<double>(more);
  return static_cast<double>(groups_[group].used + more) / groups_[group].weight;
}

std::optional<size_t> FairShares::Most(absl::FunctionRef<bool(size_t group)> can_give) const {
  std::optional<size_t> most;
  for (size_t group = 0; group < groups_.size(); ++group) {
    if (groups_[group].used == 0 || (most.has_value() && PerWeight(group) <= PerWeight(*most))) continue;
    if (can_give(group)) most = group;
  }
  return most;
}

FairShares::Verdict FairShares::Ask(size_t group, int64_t more) const {
  if (group < groups_.size() && more > groups_[group].cap - groups_[group].used) return {Verdict::Kind::kCap};
  if (used_ + more <= limit_) return {};
  const std::optional<size_t> most = Most([group](size_t other) { return other != group; });
  if (!most.has_value() || PerWeight(*most) <= PerWeight(group, more)) return {Verdict::Kind::kShare};
  return {Verdict::Kind::kGivesWay, *most};
}

bool FairShares::OtherHasMore(size_t group) const {
  const std::optional<size_t> most = Most([group](size_t other) { return other != group; });
  return most.has_value() && PerWeight(*most) > PerWeight(group);
}

int64_t FairShares::ShareOf(size_t group) const {
  double weights = 0;
  for (size_t other = 0; other < groups_.size(); ++other) {
    if (groups_[other].used > 0 || other == group) weights += groups_[other].weight;
  }
  if (group >= groups_.size()) return static_cast<int64_t>(static_cast<double>(limit_) / (weights + 1));
  const Group& found = groups_[group];
  return std::min(static_cast<int64_t>(static_cast<double>(limit_) * found.weight / weights), found.cap);
}

}  // namespace sluice
