#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/proxy/client_groups.h"
#include "lib/proxy/target_policy.h"

namespace sluice {

// Decides for each client which workers it may call, and in which class of traffic. A proxy has one, which Reconfigure
// replaces. Immutable once it is in use.
class ClientPolicies {
 public:
  // Clients that may call these workers instead of the workers of all other clients.
  struct Group {
    std::vector<uint32_t> users;       // on Unix sockets
    std::vector<std::string> names;    // of certificates, as ListenerTls::client_names
    std::vector<std::string> workers;  // patterns: see TargetPolicy
    std::string traffic_class;         // these clients are in it; empty: a call names its class
    ClientShare share = {};            // empty name: "clients[i]"

    friend bool operator==(const Group&, const Group&) = default;
  };

  // The workers and the class of one client.
  struct Policy {
    TargetPolicy workers;
    std::string traffic_class;  // as Group::traffic_class
    ClientShare share = {};
  };

  // `workers` applies to clients that are in no group; empty means "private". Returns InvalidArgument that names the
  // field of sluice-proxy's config: for a wrong pattern or name, a group without clients or without workers, a user or
  // name that is in two groups, and a wrong share. `with_header` are patterns of workers that expect a header of the
  // PROXY protocol.
  static absl::StatusOr<ClientPolicies> Create(absl::Span<const std::string> workers, absl::Span<const Group> groups,
                                               absl::Span<const std::string> with_header = {});

  // As TargetPolicy::SetOwnAddresses, for all groups.
  void SetOwnAddresses(absl::Span<const std::string> addresses, absl::Span<const std::string> host);

  // Whether a worker expects a header of the PROXY protocol: any, or the one at this address of this target.
  bool AnyExpectsHeader() const { return with_header_.has_value(); }
  bool ExpectsHeader(absl::string_view target, absl::string_view address) const;

  // Whether the client's certificate has one of these names.
  using HasOneOf = absl::FunctionRef<bool(absl::Span<const std::string> names)>;
  // Returns the policy of the first group that contains the client, or the policy of all other clients.
  const Policy& Find(std::optional<uint32_t> user, HasOneOf has_one_of) const;

 private:
  struct GroupPolicy {
    Group group;
    Policy policy;
  };

  std::vector<GroupPolicy> groups_;
  Policy others_;
  std::optional<TargetPolicy> with_header_;
};

}  // namespace sluice
