#pragma once

#include <string>
#include <utility>  // Boost 1.74 misses it in C++20
#include <vector>

#include <boost/asio/ip/network_v4.hpp>
#include <boost/asio/ip/network_v6.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sluice {

// Decides which workers a proxy may call for its clients. It checks names, and also each address of a name, because the
// owner of a name also controls its addresses. There is one for each group of clients of a proxy, and one for all other
// clients. Immutable once it is in use.
//
// Names are compared without case, and without a dot at their end. An IPv6 address that leads to an IPv4 address
// (mapped, compatible, NAT64, 6to4) is also judged as that address.
//
// A pattern is one of these; without a port it matches every port:
//   10.0.0.0/8, 10.0.0.7:7000, fd00::/8, [fd00::7]:7000   addresses, by network or alone
//   *.workers.svc:7000, shard-*, localhost                names; "*" matches any characters
//   private                                               the private networks of RFC 1918, 4193 and 6598
//   unix:/run/workers/*                                    Unix sockets, whose paths have no ".."
//   bytes:10.0.0.7:8080, bytes:*.web.svc                  each of these, for workers whose tunnels carry only bytes
//
// Some addresses are never workers, even if a permitted name leads to them: link-local addresses, where clouds serve
// the metadata of machines; multicast and unspecified addresses; and the proxy's own addresses, because a call to them
// would loop forever. Loopback addresses are workers only by a pattern that contains only loopback addresses. Addresses
// of the proxy's host are workers only by a pattern that has a port, or that is a name or this address alone: other
// services of the host are not meant for clients of other hosts.
class TargetPolicy {
 public:
  // Returns InvalidArgument that names the pattern. An empty list means "private".
  static absl::StatusOr<TargetPolicy> Create(absl::Span<const std::string> patterns);

  // Sets the proxy's own addresses, "IP:port" or "unix:PATH", and the IP addresses of its host. Call it before the
  // policy is in use.
  void SetOwnAddresses(absl::Span<const std::string> addresses, absl::Span<const std::string> host);

  // Checks "host:port" or "unix:PATH" before any look-up. OK means that it may be a worker, if its addresses pass
  // CheckAddress. Returns PermissionDenied, or InvalidArgument if it is not a valid target.
  absl::Status CheckTarget(absl::string_view target) const;
  // Checks one address "IP:port" or "unix:PATH" of a target that passed CheckTarget. Returns the pattern that permits
  // it, as it was configured. `needs_port`: only a pattern with a port permits it, or a socket.
  absl::StatusOr<absl::string_view> CheckAddress(absl::string_view target, absl::string_view address,
                                                 bool needs_port = false) const;

  // Whether a pattern bytes: matches this address of this target, or any address at all. A tunnel to such a worker
  // carries bytes even if they are plaintext HTTP/2.
  bool CarriesBytes(absl::string_view target, absl::string_view address) const;
  bool AnyCarriesBytes() const;

  // Checks an address "IP:port" that a tunnel only forwards bytes to. Returns PermissionDenied for the addresses that
  // are never workers, and for loopback.
  absl::Status CheckPassed(absl::string_view address) const;

 private:
  struct Pattern {
    std::string text;
    std::string name;  // a canonical name, or a path, with "*"; empty: the networks apply
    int port = 0;      // 0: any
    bool bytes = false;
    std::vector<boost::asio::ip::network_v4> v4;
    std::vector<boost::asio::ip::network_v6> v6;

    bool IsWide() const;  // has many addresses, and all ports
  };
  struct Target;

  static absl::StatusOr<Pattern> Parse(const std::string& text);
  static absl::StatusOr<Target> ParseTarget(absl::string_view target);
  static bool Matches(const Pattern& pattern, const Target& target);
  // Matches the name, or the address to which it leads. A pattern of names does not match the text of an address.
  static bool Matches(const Pattern& pattern, const Target& named, const Target& found);
  static std::string Canonical(absl::string_view address);

  absl::Status CheckNotOwn(absl::string_view address) const;
  bool IsOfHost(const Target& found) const;

  std::vector<Pattern> patterns_;
  std::vector<std::string> own_addresses_;  // canonical
  std::vector<std::string> host_;           // IP addresses, canonical
};

}  // namespace sluice
