#include "lib/proxy/client_policies.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/tls/tls_context.h"

namespace sluice {
namespace {

// Rejects a user or name in two groups: a reader of the config could not tell which group applies. A client whose
// certificate has names of two groups belongs to the first of them.
absl::Status CheckGroup(const ClientPolicies::Group& group, absl::string_view field, std::set<std::string>& seen) {
  if (group.users.empty() && group.names.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(field, " names no clients; give uids or names"));
  }
  if (group.workers.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(field, ".workers is empty; give the workers that these may call"));
  }
  for (const uint32_t user : group.users) {
    if (seen.insert(absl::StrCat(user)).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(field, ".uids: ", user, " is given twice"));
  }
  for (const std::string& name : group.names) {
    if (absl::Status valid = ValidateClientName(absl::StrCat(field, ".names"), name); !valid.ok()) return valid;
    // The prefix keeps names apart from uids.
    if (seen.insert(absl::StrCat("=", absl::AsciiStrToLower(name))).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(field, ".names: \"", name, "\" is given twice"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ClientPolicies> ClientPolicies::Create(absl::Span<const std::string> workers,
                                                      absl::Span<const Group> groups,
                                                      absl::Span<const std::string> with_header) {
  ClientPolicies policies;
  absl::StatusOr<TargetPolicy> others = TargetPolicy::Create(workers);
  if (!others.ok()) return others.status();
  policies.others_.workers = *std::move(others);
  std::set<std::string> seen;
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string field = absl::StrCat("clients[", i, "]");
    if (absl::Status valid = CheckGroup(groups[i], field, seen); !valid.ok()) return valid;
    absl::StatusOr<TargetPolicy> policy = TargetPolicy::Create(groups[i].workers);
    // The message begins with the field, "workers: ...".
    if (!policy.ok()) return absl::InvalidArgumentError(absl::StrCat(field, ".", policy.status().message()));
    policies.groups_.push_back({groups[i], {*std::move(policy), groups[i].traffic_class}});
  }
  if (with_header.empty()) return policies;
  absl::StatusOr<TargetPolicy> expects = TargetPolicy::Create(with_header);
  if (!expects.ok()) {
    const absl::string_view why = absl::StripPrefix(expects.status().message(), "workers: ");
    return absl::InvalidArgumentError(absl::StrCat("tunnels.proxy_protocol: ", why));
  }
  policies.with_header_ = *std::move(expects);
  return policies;
}

bool ClientPolicies::ExpectsHeader(absl::string_view target, absl::string_view address) const {
  return with_header_.has_value() && with_header_->CheckTarget(target).ok() &&
         with_header_->CheckAddress(target, address).ok();
}

void ClientPolicies::SetOwnAddresses(absl::Span<const std::string> addresses) {
  others_.workers.SetOwnAddresses(addresses);
  for (GroupPolicy& group : groups_) group.policy.workers.SetOwnAddresses(addresses);
}

const ClientPolicies::Policy& ClientPolicies::Find(std::optional<uint32_t> user, HasOneOf has_one_of) const {
  for (const GroupPolicy& found : groups_) {
    const auto& [users, names, workers, traffic_class] = found.group;
    if (user.has_value() && std::find(users.begin(), users.end(), *user) != users.end()) return found.policy;
    if (!names.empty() && has_one_of(names)) return found.policy;
  }
  return others_;
}

}  // namespace sluice
