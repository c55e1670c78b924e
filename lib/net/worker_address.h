#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/net/executor.h"

namespace sluice {

// The parsed address of a worker. Sluice takes these forms of a gRPC target: "host:port",
// "10.0.0.1:7000", "[::1]:7000", "dns:host:port", "dns:///host:port", "ipv4:10.0.0.1:7000", "ipv6:[::1]:7000" (both
// also several, separated by commas), "unix:PATH", "unix:///PATH", "unix-abstract:NAME".
struct WorkerTarget {
  // A name or the first IP address, without brackets. "localhost" for a Unix socket, as in gRPC.
  std::string host;
  int port = 0;  // 1 to 65535; 0 for a Unix socket
  // The addresses, if they are known without a look-up. Empty if `host` is a name.
  std::vector<WorkerAddress> addresses;
};

// Return InvalidArgument that quotes the address.
absl::StatusOr<WorkerTarget> ParseWorkerTarget(absl::string_view address);
absl::Status ValidateWorkerAddress(absl::string_view address);

bool IsIpv6(const WorkerAddress& address);

// True for "unix:PATH" and "unix-abstract:NAME", valid or not.
bool IsUnixAddress(absl::string_view address);

// Returns the :authority of requests to `target`: the target itself, or "localhost" for a Unix socket. An authority
// cannot contain a path (RFC 3986, section 3.2) and servers reset such streams, so gRPC also sends "localhost".
std::string AuthorityOf(const std::string& target);

// Moves the addresses of the first address's family, the most reachable (RFC 6724), to the front, and returns their
// number. A worker with an IPv4 and an IPv6 address is therefore one worker. Sorts each family, because name servers
// rotate addresses, so that all processes with the same addresses number them alike.
size_t SortByFamily(std::vector<WorkerAddress>& addresses);

}  // namespace sluice
