#include "lib/proxy/client_groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/scheduling/limit_status.h"

namespace sluice {
namespace {

constexpr char kOtherGroups[] = "others";
constexpr std::array<absl::string_view, kClientLimits> kNames = {"connections", "calls", "targets"};

constexpr std::array<ClientLimit, kClientLimits> kAllLimits = {ClientLimit::kConnections, ClientLimit::kCalls,
                                                               ClientLimit::kTargets};

size_t IndexOf(ClientLimit limit) {
  return static_cast<size_t>(limit);
}

int64_t CapOf(const ClientShare& share, ClientLimit limit) {
  switch (limit) {
    case ClientLimit::kConnections:
      return share.connections;
    case ClientLimit::kCalls:
      return share.calls;
    case ClientLimit::kTargets:
      return share.targets;
  }
  return FairShares::kNoCap;
}

}  // namespace

absl::string_view ClientLimitName(ClientLimit limit) {
  return kNames[IndexOf(limit)];
}

// --- One place.

void ClientCharge::SetIdle(bool idle) {
  if (group_ == nullptr) return;
  unlink();
  ClientGroup::Places& places = group_->places_[IndexOf(limit_)];
  (idle ? places.idle : places.busy).push_back(*this);
}

void ClientCharge::Return() {
  unlink();
  if (group_ == nullptr) return;
  group_->table_->shares[IndexOf(limit_)].Count(group_->index_, -1);
  group_.reset();
}

// --- One group.

ClientGroup::ClientGroup(std::shared_ptr<Table> table, std::string name, size_t index)
    : table_(std::move(table)), name_(std::move(name)), index_(index) {
  table_->groups[index_] = this;
}

ClientGroup::~ClientGroup() {
  table_->groups[index_] = nullptr;
}

// --- All groups.

void ClientGroups::SetLimit(ClientLimit limit, size_t most) {
  table_->shares[IndexOf(limit)].SetLimit(static_cast<int64_t>(most));
}

size_t ClientGroups::FreeIndex() {
  const auto free = std::find(table_->groups.begin() + kStrangers + 1, table_->groups.end(), nullptr);
  const auto index = static_cast<size_t>(free - table_->groups.begin());
  if (free == table_->groups.end()) table_->groups.push_back(nullptr);
  return index;
}

std::shared_ptr<ClientGroup> ClientGroups::Find(const std::string& name, const ClientShare& share) {
  std::shared_ptr<ClientGroup> group;
  if (const auto known = groups_.find(name); known != groups_.end()) group = known->second.lock();
  if (group == nullptr && share.name.empty() && name != kOtherGroups && groups_.size() >= kMaxGroups) {
    return Find(kOtherGroups, share);
  }
  if (group == nullptr) {
    group.reset(new ClientGroup(table_, name, FreeIndex()));
    groups_[name] = group;
  }
  for (const ClientLimit limit : kAllLimits) {
    table_->shares[IndexOf(limit)].SetGroup(group->index(), share.weight, CapOf(share, limit));
  }
  for (const auto& [held_name, held] : held_) held->SetGroup(group->index(), share.weight, share.held_bytes);
  return group;
}

absl::Status ClientGroups::Refuse(const ClientGroup& group, ClientLimit limit, FairShares::Verdict::Kind why) {
  const bool cap = why == FairShares::Verdict::Kind::kCap;
  metrics_.CountGroupRefusal(group.name(), ClientLimitName(limit), cap ? "cap" : "share");
  const FairShares& of_limit = shares(limit);
  const int64_t used = of_limit.used(group.index());
  if (cap) {
    return AtLimit(absl::StrCat("clients.limits.", ClientLimitName(limit)),
                   absl::StrCat("the clients of group \"", group.name(), "\" have ", used, " ", ClientLimitName(limit),
                                ", which is limits.", ClientLimitName(limit), " of their entry in clients"));
  }
  const std::string name = absl::StrCat("limits.", ClientLimitName(limit));
  return AtLimit(name, absl::StrCat(name, " is ", of_limit.limit(), ", and the clients of group \"", group.name(),
                                    "\" have ", used, " of them; no group has more for its weight"));
}

// The place is free at once. Otherwise clients that ask in the same turn would let too many give way.
bool ClientGroups::GiveWay(ClientGroup& group, ClientLimit limit, bool idle_only) {
  ClientGroup::Places& places = group.places_[IndexOf(limit)];
  const bool idle = !places.idle.empty();
  if (!idle && (idle_only || places.busy.empty())) return false;
  ClientCharge& charge = idle ? places.idle.front() : places.busy.back();
  const FairShares& of_limit = shares(limit);
  absl::Status why = absl::UnavailableError("the connection was idle, and others need its room");
  if (idle) {
    metrics_.CountIdleEnd();
  } else {
    metrics_.CountGroupRefusal(group.name(), ClientLimitName(limit), "gave_way");
    const std::string name = absl::StrCat("limits.", ClientLimitName(limit));
    why = AtLimit(name, absl::StrCat(name, " is ", of_limit.limit(), ", and the clients of group \"", group.name(),
                                     "\" have ", of_limit.used(group.index()),
                                     " of them, the most for their weight; clients of another group need one"));
  }
  charge.Return();
  if (charge.give_way_ != nullptr) charge.give_way_(why);
  return true;
}

absl::Status ClientGroups::Take(const std::shared_ptr<ClientGroup>& group, ClientLimit limit, ClientCharge& charge) {
  while (true) {
    const FairShares::Verdict verdict = shares(limit).Ask(group->index());
    if (verdict.kind == FairShares::Verdict::Kind::kYes) break;
    if (verdict.kind == FairShares::Verdict::Kind::kGivesWay) {
      // If nothing of that group can give way, its calls have all ended, and their places become free soon.
      if (!GiveWay(*table_->groups[verdict.from], limit, /*idle_only=*/false)) break;
    } else if (!GiveWay(*group, limit, /*idle_only=*/true)) {
      return Refuse(*group, limit, verdict.kind);
    }
  }
  Charge(group, limit, charge);
  charge.SetIdle(false);
  return absl::OkStatus();
}

void ClientGroups::Charge(const std::shared_ptr<ClientGroup>& group, ClientLimit limit, ClientCharge& charge) {
  charge.Return();
  charge.group_ = group;
  charge.limit_ = limit;
  table_->shares[IndexOf(limit)].Count(group->index(), 1);
}

void ClientGroups::Report() {
  for (auto entry = groups_.begin(); entry != groups_.end();) {
    const std::shared_ptr<ClientGroup> group = entry->second.lock();
    if (group == nullptr) {
      metrics_.DropGroup(entry->first);
      entry = groups_.erase(entry);
      continue;
    }
    for (const ClientLimit limit : kAllLimits) {
      const FairShares& of_limit = shares(limit);
      metrics_.SetGroupUse(group->name(), ClientLimitName(limit), of_limit.used(group->index()),
                           of_limit.ShareOf(group->index()));
    }
    for (const auto& [name, held] : held_) {
      metrics_.SetGroupUse(group->name(), name, held->bytes_of(group->index()), held->ShareOf(group->index()));
    }
    ++entry;
  }
}

}  // namespace sluice
