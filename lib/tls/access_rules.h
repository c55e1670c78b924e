#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice {

// The identity of the other side of an accepted connection. A plain value.
struct PeerIdentity {
  std::vector<std::string> dns_names;  // of the subjectAltName of its certificate, which an authority has signed
  std::vector<std::string> uris;
  std::optional<uint32_t> uid;  // of its process, on a Unix socket

  // "spiffe://example/reader", "uid 1001", or "a client without a name".
  std::string ToString() const;
};

// Lets clients call methods for files. A plain value.
struct AccessRule {
  std::vector<std::string> names;    // DNS names, without regard to case, and URIs; each whole
  std::vector<uint32_t> uids;        // users on Unix sockets
  std::vector<std::string> methods;  // "BlockService" or "BlockService/Read"; empty: all
  std::vector<std::string> files;    // prefixes of file names; empty: all, and calls that read no file

  friend bool operator==(const AccessRule&, const AccessRule&) = default;
};

// A call that a server has refused. A plain value.
struct AccessRefusal {
  std::string client;  // PeerIdentity::ToString
  std::string peer;    // its address
  std::string method;
  std::string reason;
};

// Decides which call a server accepts: without rules each one, with rules those that a rule allows. Immutable.
class AccessRules {
 public:
  AccessRules() = default;
  // `methods` are those of the server, such as "BlockService/Read". Returns InvalidArgument that names the field
  // "access[N]...." for a rule without clients, a name that cannot be one, and an unknown method.
  static absl::StatusOr<AccessRules> Create(std::vector<AccessRule> rules, absl::Span<const absl::string_view> methods);

  bool empty() const { return rules_.empty(); }
  const std::vector<AccessRule>& rules() const { return rules_; }
  std::vector<uint32_t> Uids() const;  // of all rules, each once

  // Returns PermissionDenied that names the client, and the field that would have to allow the call. `file` is absent
  // for a method that reads none.
  absl::Status Check(const PeerIdentity& peer, absl::string_view method, std::optional<absl::string_view> file) const;

 private:
  std::vector<AccessRule> rules_;
};

}  // namespace sluice
