#include "lib/net/worker_address.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/ip/address.hpp>
#include <sys/un.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/net/host_port.h"

namespace sluice {
namespace {

// One byte of the kernel's array ends a path, or begins an abstract name.
constexpr size_t kMaxPathBytes = sizeof(sockaddr_un::sun_path) - 1;

absl::Status Refuse(absl::string_view address, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("worker address \"", address, "\" ", why));
}

absl::StatusOr<WorkerTarget> ParseUnix(absl::string_view address, absl::string_view scheme, absl::string_view path) {
  if (path.empty()) return Refuse(address, absl::StrCat("names no socket after ", scheme));
  if (path.size() > kMaxPathBytes || absl::StrContains(path, '\0')) {
    return Refuse(address, absl::StrCat("names a socket with ", path.size(), " bytes; it must have at most ",
                                        kMaxPathBytes, " and none of them 0"));
  }
  return WorkerTarget{.host = "localhost", .addresses = {{absl::StrCat(scheme, path)}}};
}

// `address` is the complete address, for errors.
absl::StatusOr<WorkerTarget> ParseHost(absl::string_view address, absl::string_view host_and_port) {
  absl::StatusOr<HostPort> parsed = ParseHostPort(std::string_view(host_and_port.data(), host_and_port.size()));
  if (!parsed.ok() || parsed->host.empty() || parsed->port == 0) {
    return Refuse(address, "is not host:port with a port between 1 and 65535");
  }
  WorkerTarget target{.host = std::move(parsed->host), .port = parsed->port};
  boost::system::error_code is_name;
  const auto literal = boost::asio::ip::make_address(target.host, is_name);
  if (!is_name) {
    const std::string ip = literal.to_string();
    target.addresses.push_back({literal.is_v6() ? absl::StrCat("[", ip, "]:", target.port)  //
                                                : absl::StrCat(ip, ":", target.port)});
  } else if (absl::StrContains(target.host, ':')) {
    return Refuse(address, "has brackets around what is not an IPv6 address");
  }
  return target;
}

absl::StatusOr<WorkerTarget> ParseLiterals(absl::string_view address, absl::string_view list, bool v6) {
  WorkerTarget all;
  for (const absl::string_view one : absl::StrSplit(list, ',')) {
    absl::StatusOr<WorkerTarget> target = ParseHost(address, one);
    if (!target.ok()) return target.status();
    if (target->addresses.empty() || absl::StartsWith(target->addresses.front().text, "[") != v6) {
      return Refuse(address, absl::StrCat("has no ", v6 ? "IPv6" : "IPv4", " address in \"", one, "\""));
    }
    if (all.addresses.empty()) {
      all = *std::move(target);
    } else {
      all.addresses.push_back(std::move(target->addresses.front()));
    }
  }
  return all;
}

}  // namespace

absl::StatusOr<WorkerTarget> ParseWorkerTarget(absl::string_view address) {
  absl::string_view rest = address;
  if (absl::ConsumePrefix(&rest, "unix-abstract:")) return ParseUnix(address, "unix-abstract:", rest);
  if (absl::ConsumePrefix(&rest, "unix:")) {
    if (absl::StartsWith(rest, "///")) rest.remove_prefix(2);
    return ParseUnix(address, "unix:", rest);
  }
  if (absl::ConsumePrefix(&rest, "ipv4:")) return ParseLiterals(address, rest, /*v6=*/false);
  if (absl::ConsumePrefix(&rest, "ipv6:")) return ParseLiterals(address, rest, /*v6=*/true);
  if (absl::ConsumePrefix(&rest, "dns:") && absl::ConsumePrefix(&rest, "//") && !absl::ConsumePrefix(&rest, "/")) {
    return Refuse(address, "names a name server, which is not supported; give dns:///host:port");
  }
  return ParseHost(address, rest);
}

absl::Status ValidateWorkerAddress(absl::string_view address) {
  return ParseWorkerTarget(address).status();
}

bool IsIpv6(const WorkerAddress& address) {
  return absl::StartsWith(address.text, "[");
}

bool IsUnixAddress(absl::string_view address) {
  return absl::StartsWith(address, "unix:") || absl::StartsWith(address, "unix-abstract:");
}

std::string AuthorityOf(const std::string& target) {
  return IsUnixAddress(target) ? "localhost" : target;
}

size_t SortByFamily(std::vector<WorkerAddress>& addresses) {
  if (addresses.empty()) return 0;
  const bool first_is_v6 = IsIpv6(addresses.front());
  std::sort(addresses.begin(), addresses.end(), [&](const WorkerAddress& a, const WorkerAddress& b) {
    return std::make_pair(IsIpv6(a) != first_is_v6, a.text) < std::make_pair(IsIpv6(b) != first_is_v6, b.text);
  });
  return static_cast<size_t>(std::count_if(addresses.begin(), addresses.end(), [&](const WorkerAddress& address) {
    return IsIpv6(address) == first_is_v6;
  }));
}

}  // namespace sluice
