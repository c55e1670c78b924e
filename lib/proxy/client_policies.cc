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

constexpr double kMinShareWeight = 0.001;
constexpr double kMaxShareWeight = 1000;
constexpr size_t kMaxNameBytes = 64;

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

absl::Status CheckShare(const ClientShare& share, absl::string_view field) {
  if (!(share.weight >= kMinShareWeight && share.weight <= kMaxShareWeight)) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ".weight is ", share.weight, "; it must be ", kMinShareWeight, " to ", kMaxShareWeight));
  }
  const auto printable = [](unsigned char c) { return absl::ascii_isprint(c); };
  if (share.name.size() > kMaxNameBytes || !std::all_of(share.name.begin(), share.name.end(), printable)) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ".group must be printable, and have at most ", kMaxNameBytes, " characters"));
  }
  const std::pair<const char*, int64_t> caps[] = {{"connections", share.connections},
                                                  {"calls", share.calls},
                                                  {"targets", share.targets},
                                                  {"held", share.held_bytes}};
  for (const auto& [name, cap] : caps) {
    if (cap >= 1) continue;
    return absl::InvalidArgumentError(absl::StrCat(field, ".limits.", name, " is ", cap, "; it must be at least 1"));
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
    ClientShare share = groups[i].share;
    if (share.name.empty()) share.name = field;
    if (absl::Status valid = CheckShare(share, field); !valid.ok()) return valid;
    // The prefix keeps names of groups apart from names of clients.
    if (!seen.insert(absl::StrCat("/", share.name)).second) {
      return absl::InvalidArgumentError(absl::StrCat(field, ".group: \"", share.name, "\" is given twice"));
    }
    policies.groups_.push_back({groups[i], {*std::move(policy), groups[i].traffic_class, std::move(share)}});
  }
  if (with_header.empty()) return policies;
  absl::StatusOr<TargetPolicy> expects = TargetPolicy::Create(with_header);
  if (!expects.ok()) {
    const absl::string_view why = absl::StripPrefix(expects.status().message(), "workers: ");
    return absl::InvalidArgumentError(absl::StrCat("tunnels.proxy_protocol: ", why));
  }
  if (expects->AnyCarriesBytes()) {
    return absl::InvalidArgumentError("tunnels.proxy_protocol: a pattern bytes: belongs in workers");
  }
  policies.with_header_ = *std::move(expects);
  return policies;
}

bool ClientPolicies::ExpectsHeader(absl::string_view target, absl::string_view address) const {
  return with_header_.has_value() && with_header_->CheckTarget(target).ok() &&
         with_header_->CheckAddress(target, address).ok();
}

void ClientPolicies::SetOwnAddresses(absl::Span<const std::string> addresses, absl::Span<const std::string> host) {
  others_.workers.SetOwnAddresses(addresses, host);
  for (GroupPolicy& group : groups_) group.policy.workers.SetOwnAddresses(addresses, host);
}

const ClientPolicies::Policy& ClientPolicies::Find(std::optional<uint32_t> user, HasOneOf has_one_of) const {
  for (const GroupPolicy& found : groups_) {
    const auto& [users, names, workers, traffic_class, share] = found.group;
    if (user.has_value() && std::find(users.begin(), users.end(), *user) != users.end()) return found.policy;
    if (!names.empty() && has_one_of(names)) return found.policy;
  }
  return others_;
}

}  // namespace sluice
