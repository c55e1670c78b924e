#include "lib/proxy/target_policy.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <fnmatch.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/metadata_fields.h"
#include "lib/net/host_port.h"
#include "lib/net/socket_address.h"
#include "lib/net/worker_address.h"

namespace sluice {
namespace {

namespace ip = boost::asio::ip;

constexpr char kPrivate[] = "private";
constexpr std::array<const char*, 4> kPrivateV4 = {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"};
constexpr char kPrivateV6[] = "fc00::/7";
constexpr char kBytes[] = "bytes:";  // before a pattern

// Metadata services of clouds that are not on a link-local address.
constexpr std::array<const char*, 8> kMetadataAddresses = {
    "100.100.100.200",                        // Alibaba
    "168.63.129.16",                          // Azure
    "192.0.0.192",     "fd00:c1::a9fe:a9fe",  // Oracle
    "fd00:ec2::254",   "fd00:ec2::23",        // AWS: instances, pods of EKS
    "fd20:ce::254",                           // Google
    "fd00:42::42",                            // Scaleway
};

// An IPv4-mapped IPv6 address leads to the same host as its IPv4 address. Except for link-local addresses, the kernel
// ignores the zone of an IPv6 address.
std::optional<ip::address> ParseIp(const std::string& text) {
  boost::system::error_code error;
  const ip::address address = ip::make_address(text, error);
  if (error) return std::nullopt;
  if (!address.is_v6()) return address;
  ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) return ip::make_address_v4(ip::v4_mapped, v6);
  if (!v6.is_link_local()) v6.scope_id(0);
  return v6;
}

bool Contains(const ip::network_v4& network, const ip::address& address) {
  if (!address.is_v4()) return false;
  return network.canonical().network() == ip::make_network_v4(address.to_v4(), network.prefix_length()).network();
}

bool Contains(const ip::network_v6& network, const ip::address& address) {
  if (!address.is_v6()) return false;
  return network.canonical().network() == ip::make_network_v6(address.to_v6(), network.prefix_length()).network();
}

// The loopback addresses are 127.0.0.0/8, and one address of IPv6.
bool IsLoopbackOnly(const ip::network_v4& network) {
  return network.address().is_loopback() && network.prefix_length() >= 8;
}

bool IsLoopbackOnly(const ip::network_v6& network) {
  return network.address().is_loopback() && network.prefix_length() == 128;
}

// The IPv4 address within an IPv6 address that a translator or a relay forwards to it: NAT64 (RFC 6052, section 2.1;
// RFC 8215), 6to4 (RFC 3056, section 2), and IPv4-compatible (RFC 4291, section 2.5.5.1).
std::optional<ip::address> WithinOf(const ip::address& address) {
  if (!address.is_v6()) return std::nullopt;
  static const std::array<std::pair<ip::network_v6, size_t>, 4> forms = {{
      {ip::make_network_v6("64:ff9b::/96"), 12},
      {ip::make_network_v6("64:ff9b:1::/48"), 12},
      {ip::make_network_v6("2002::/16"), 2},
      {ip::make_network_v6("::/96"), 12},
  }};
  if (address.is_unspecified() || address.is_loopback()) return std::nullopt;
  for (const auto& [network, at] : forms) {
    if (!Contains(network, address)) continue;
    const ip::address_v6::bytes_type bytes = address.to_v6().to_bytes();
    return ip::address_v4({bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]});
  }
  return std::nullopt;
}

bool IsNever(const ip::address& address) {
  if (const std::optional<ip::address> within = WithinOf(address); within.has_value() && IsNever(*within)) return true;
  if (address.is_unspecified() || address.is_multicast()) return true;
  if (address.is_v6() && address.to_v6().is_link_local()) return true;
  if (address.is_v4()) {
    static const ip::network_v4 link_local = ip::make_network_v4("169.254.0.0/16");
    if (Contains(link_local, address) || address.to_v4() == ip::address_v4::broadcast()) return true;
  }
  const std::string text = address.to_string();
  return std::find(kMetadataAddresses.begin(), kMetadataAddresses.end(), text) != kMetadataAddresses.end();
}

bool IsName(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || c == '*';
  });
}

// Names are compared without case, and without the dot at the end that keeps a resolver from its search list.
std::string CanonicalName(absl::string_view name) {
  if (name.size() > 1 && name.back() == '.') name.remove_suffix(1);
  return absl::AsciiStrToLower(name);
}

// Whether the path leaves the folder that a pattern permits.
bool Climbs(absl::string_view path) {
  return absl::StrContains(path, "/../") || absl::EndsWith(path, "/..");
}

bool MatchesGlob(const std::string& pattern, const std::string& text) {
  return fnmatch(pattern.c_str(), text.c_str(), FNM_NOESCAPE) == 0;
}

absl::Status Deny(absl::string_view target, absl::string_view why) {
  return absl::PermissionDeniedError(absl::StrCat("\"", Snippet(target), "\" ", why));
}

absl::Status DenyNever(absl::string_view target) {
  return Deny(target, "is a link-local, metadata, multicast or unspecified address, which is never a worker");
}

absl::Status DenyLoopback(absl::string_view target) {
  return Deny(target,
              absl::StrCat("is a loopback address; add a pattern to workers that permits loopback alone, such as ",
                           absl::StartsWith(target, "[") ? "::1" : "127.0.0.0/8"));
}

absl::Status DenyHost(absl::string_view target) {
  return Deny(target,
              "is an address of the proxy's host; add a pattern to workers that has its port, or that is this address "
              "alone");
}

absl::Status DenyWithoutPort(absl::string_view target, absl::string_view pattern) {
  return Deny(target,
              absl::StrCat("is permitted only by the pattern ", pattern,
                           ", which has no port; tunnels of clients of other hosts need a pattern with a port"));
}

absl::Status DenyOther(absl::string_view target) {
  return Deny(target, "is not among the workers that this proxy may call; add a pattern for it to workers");
}

}  // namespace

// The parts of a target, before any look-up.
struct TargetPolicy::Target {
  std::string name;  // canonical, without port; the whole address of a Unix socket
  int port = 0;
  std::optional<ip::address> address;  // if the name is a literal
  std::optional<ip::address> within;   // the IPv4 address in it; otherwise `address`
  bool is_socket = false;

  bool IsLoopback() const { return within.has_value() && within->is_loopback(); }
};

absl::StatusOr<TargetPolicy> TargetPolicy::Create(absl::Span<const std::string> patterns) {
  TargetPolicy policy;
  const std::array<std::string, 1> by_default = {kPrivate};
  if (patterns.empty()) patterns = by_default;
  for (const std::string& text : patterns) {
    absl::StatusOr<Pattern> pattern = Parse(text);
    if (!pattern.ok()) return pattern.status();
    policy.patterns_.push_back(*std::move(pattern));
  }
  return policy;
}

absl::StatusOr<TargetPolicy::Pattern> TargetPolicy::Parse(const std::string& text) {
  Pattern pattern{.text = text};
  const absl::Status refusal = absl::InvalidArgumentError(absl::StrCat(
      "workers: \"", Snippet(text), "\" is not a network (10.0.0.0/8), an address, a name with \"*\" and a port ",
      "(*.workers:7000), unix:PATH or \"private\", perhaps after \"bytes:\""));
  if (absl::StartsWith(text, kBytes)) {
    absl::StatusOr<Pattern> rest = Parse(text.substr(sizeof kBytes - 1));
    if (!rest.ok() || rest->bytes) return refusal;
    rest->text = text;
    rest->bytes = true;
    return rest;
  }
  if (text == kPrivate) {
    for (const char* network : kPrivateV4) pattern.v4.push_back(ip::make_network_v4(network));
    pattern.v6.push_back(ip::make_network_v6(kPrivateV6));
    return pattern;
  }
  if (IsUnixAddress(text)) {
    pattern.name = text;
    return pattern;
  }
  boost::system::error_code error;
  if (absl::StrContains(text, '/')) {
    const ip::network_v4 v4 = ip::make_network_v4(text, error);
    if (!error) {
      pattern.v4.push_back(v4);
      return pattern;
    }
    const ip::network_v6 v6 = ip::make_network_v6(text, error);
    if (error) return refusal;
    pattern.v6.push_back(v6);
    return pattern;
  }
  std::string host = text;
  const bool bracketed = absl::StartsWith(text, "[");
  if (const size_t colon = text.rfind(':');
      colon != std::string::npos && (bracketed || text.find(':') == colon) && !absl::EndsWith(text, "]")) {
    if (!absl::SimpleAtoi(text.substr(colon + 1), &pattern.port) || pattern.port < 1 || pattern.port > 65535) {
      return refusal;
    }
    host = text.substr(0, colon);
  }
  if (bracketed) {
    if (!absl::EndsWith(host, "]")) return refusal;
    host = host.substr(1, host.size() - 2);
  }
  if (const std::optional<ip::address> address = ParseIp(host)) {
    if (address->is_v4()) pattern.v4.emplace_back(address->to_v4(), 32);
    if (address->is_v6()) pattern.v6.emplace_back(address->to_v6(), 128);
    return pattern;
  }
  if (!IsName(host)) return refusal;
  pattern.name = CanonicalName(host);
  return pattern;
}

absl::StatusOr<TargetPolicy::Target> TargetPolicy::ParseTarget(absl::string_view target) {
  Target parsed;
  if (IsUnixAddress(target)) {
    if (absl::Status valid = ValidateWorkerAddress(target); !valid.ok()) return valid;
    if (Climbs(target)) return Deny(target, "has \"..\" in its path");
    parsed.name = std::string(target);
    parsed.is_socket = true;
    return parsed;
  }
  absl::StatusOr<HostPort> host_port = ParseHostPort(std::string_view(target.data(), target.size()));
  if (!host_port.ok() || host_port->host.empty() || host_port->port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", Snippet(target), "\" names no worker: it is not host:port with a port from 1 to 65535"));
  }
  parsed.name = CanonicalName(host_port->host);
  parsed.port = host_port->port;
  parsed.address = ParseIp(parsed.name);
  parsed.within = parsed.address.has_value() ? WithinOf(*parsed.address) : std::nullopt;
  if (!parsed.within.has_value()) parsed.within = parsed.address;
  if (!parsed.address.has_value() && !IsName(parsed.name)) return Deny(target, "is no name of a host");
  return parsed;
}

bool TargetPolicy::Matches(const Pattern& pattern, const Target& target) {
  if (pattern.port != 0 && pattern.port != target.port) return false;
  if (!pattern.name.empty()) {
    return IsUnixAddress(pattern.name) == target.is_socket && MatchesGlob(pattern.name, target.name);
  }
  if (!target.address.has_value()) return false;
  const auto matches = [&](const auto& network) {
    return (Contains(network, *target.address) || Contains(network, *target.within)) &&
           (!target.IsLoopback() || IsLoopbackOnly(network));
  };
  return std::any_of(pattern.v4.begin(), pattern.v4.end(), matches) ||
         std::any_of(pattern.v6.begin(), pattern.v6.end(), matches);
}

bool TargetPolicy::Matches(const Pattern& pattern, const Target& named, const Target& found) {
  if (pattern.name.empty()) return Matches(pattern, found);
  return Matches(pattern, named) && (!found.IsLoopback() || pattern.name == "localhost");
}

absl::Status TargetPolicy::CheckTarget(absl::string_view target) const {
  const absl::StatusOr<Target> parsed = ParseTarget(target);
  if (!parsed.ok()) return parsed.status();
  if (parsed->address.has_value()) return CheckAddress(target, target).status();
  bool by_address = false;
  for (const Pattern& pattern : patterns_) {
    if (Matches(pattern, *parsed)) return absl::OkStatus();
    by_address = by_address || (pattern.name.empty() && (pattern.port == 0 || pattern.port == parsed->port));
  }
  if (by_address && !parsed->is_socket) return absl::OkStatus();
  return DenyOther(target);
}

bool TargetPolicy::Pattern::IsWide() const {
  if (port != 0 || !name.empty()) return false;
  const auto is_wide = [](const auto& network) { return !network.is_host(); };
  return std::any_of(v4.begin(), v4.end(), is_wide) || std::any_of(v6.begin(), v6.end(), is_wide);
}

bool TargetPolicy::IsOfHost(const Target& found) const {
  return found.within.has_value() && std::find(host_.begin(), host_.end(), found.within->to_string()) != host_.end();
}

absl::StatusOr<absl::string_view> TargetPolicy::CheckAddress(absl::string_view target, absl::string_view address,
                                                             bool needs_port) const {
  const absl::StatusOr<Target> named = ParseTarget(target);
  const absl::StatusOr<Target> found = ParseTarget(address);
  if (!named.ok()) return named.status();
  if (!found.ok()) return found.status();
  if (found->address.has_value() && IsNever(*found->address)) return DenyNever(address);
  if (absl::Status not_own = CheckNotOwn(address); !not_own.ok()) return not_own;
  const bool loopback = found->IsLoopback();
  const bool of_host = !loopback && IsOfHost(*found);
  absl::Status why = loopback ? DenyLoopback(address) : DenyOther(address);
  for (const Pattern& pattern : patterns_) {
    if (!Matches(pattern, *named, *found)) continue;
    if (of_host && pattern.IsWide()) {
      why = DenyHost(address);
    } else if (needs_port && pattern.port == 0 && !found->is_socket) {
      why = DenyWithoutPort(address, pattern.text);
    } else {
      return absl::string_view(pattern.text);
    }
  }
  return why;
}

bool TargetPolicy::CarriesBytes(absl::string_view target, absl::string_view address) const {
  const absl::StatusOr<Target> named = ParseTarget(target);
  const absl::StatusOr<Target> found = ParseTarget(address);
  return named.ok() && found.ok() && std::any_of(patterns_.begin(), patterns_.end(), [&](const Pattern& pattern) {
           return pattern.bytes && Matches(pattern, *named, *found);
         });
}

bool TargetPolicy::AnyCarriesBytes() const {
  return std::any_of(patterns_.begin(), patterns_.end(), [](const Pattern& pattern) { return pattern.bytes; });
}

// The same address has several notations.
std::string TargetPolicy::Canonical(absl::string_view address) {
  const absl::StatusOr<Target> parsed = ParseTarget(address);
  if (!parsed.ok() || !parsed->address.has_value()) return std::string(address);
  return FormatSocketAddress(ip::tcp::endpoint(*parsed->within, static_cast<uint16_t>(parsed->port)));
}

void TargetPolicy::SetOwnAddresses(absl::Span<const std::string> addresses, absl::Span<const std::string> host) {
  own_addresses_.clear();
  for (const std::string& address : addresses) own_addresses_.push_back(Canonical(address));
  host_.clear();
  for (const std::string& text : host) {
    if (const std::optional<ip::address> address = ParseIp(text)) host_.push_back(address->to_string());
  }
}

// A listener on all addresses is reached through each address of the host, and through all of 127.0.0.0/8.
absl::Status TargetPolicy::CheckNotOwn(absl::string_view address) const {
  const auto is_own = [this](const std::string& place) {
    return std::find(own_addresses_.begin(), own_addresses_.end(), place) != own_addresses_.end();
  };
  bool own = is_own(Canonical(address));
  const absl::StatusOr<Target> parsed = ParseTarget(address);
  const bool of_host = parsed.ok() && (parsed->IsLoopback() || IsOfHost(*parsed));
  if (of_host) {
    own = own || is_own(absl::StrCat("0.0.0.0:", parsed->port)) || is_own(absl::StrCat("[::]:", parsed->port));
  }
  return own ? Deny(address, "is this proxy") : absl::OkStatus();
}

absl::Status TargetPolicy::CheckPassed(absl::string_view address) const {
  if (absl::Status not_own = CheckNotOwn(address); !not_own.ok()) return not_own;
  const absl::StatusOr<HostPort> parsed = ParseHostPort(std::string_view(address.data(), address.size()));
  if (!parsed.ok()) return absl::InvalidArgumentError(parsed.status().message());
  const std::optional<ip::address> literal = ParseIp(parsed->host);
  if (!literal.has_value() || IsNever(*literal)) return DenyNever(address);
  if (WithinOf(*literal).value_or(*literal).is_loopback()) return DenyLoopback(address);
  return absl::OkStatus();
}

}  // namespace sluice
