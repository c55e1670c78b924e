#include "lib/net/socket_address.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/net/host_port.h"

namespace sluice {
namespace {

using boost::asio::ip::tcp;

constexpr size_t kMaxUnixBytes = sizeof(sockaddr_un::sun_path) - 1;

// Returns the endpoint of an address that needs no look-up.
std::optional<tcp::endpoint> EndpointOf(const HostPort& address, SocketUse use) {
  std::string host = address.host;
  if (use == SocketUse::kListen && host == "localhost") host = "127.0.0.1";
  if (use == SocketUse::kListen && host.empty()) host = access("/proc/net/if_inet6", F_OK) == 0 ? "::" : "0.0.0.0";
  boost::system::error_code bad;
  const auto ip = boost::asio::ip::make_address(host, bad);
  if (bad || (address.port == 0 && use == SocketUse::kConnect)) return std::nullopt;
  return tcp::endpoint(ip, static_cast<uint16_t>(address.port));
}

}  // namespace

absl::StatusOr<boost::asio::generic::stream_protocol::endpoint> ParseSocketAddress(const std::string& text,
                                                                                   SocketUse use) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:") || absl::ConsumePrefix(&rest, "unix-abstract:")) {
    const absl::string_view abstract = absl::StartsWith(text, "unix:") ? "" : absl::string_view("\0", 1);
    if (!rest.empty() && rest.size() <= kMaxUnixBytes) {
      return boost::asio::local::stream_protocol::endpoint(absl::StrCat(abstract, rest));
    }
  } else if (const absl::StatusOr<HostPort> parsed = ParseHostPort(text); parsed.ok()) {
    if (const std::optional<tcp::endpoint> endpoint = EndpointOf(*parsed, use)) return *endpoint;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\" is neither an IP address with a port nor a Unix socket with 1 to ", kMaxUnixBytes, " bytes"));
}

absl::StatusOr<tcp::endpoint> ResolveListenAddress(const std::string& text) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort(text);
  if (!parsed.ok()) return parsed.status();
  if (const std::optional<tcp::endpoint> endpoint = EndpointOf(*parsed, SocketUse::kListen)) return *endpoint;
  boost::asio::io_context context;
  boost::system::error_code error;
  const auto found = tcp::resolver(context).resolve(parsed->host, std::to_string(parsed->port),
                                                    tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (!error) return found.begin()->endpoint();
  return absl::UnavailableError(absl::StrCat("cannot listen on ", text, ": ", error.message(),
                                             "; give an IP address or a name of this machine, and a port"));
}

std::string FormatSocketAddress(const tcp::endpoint& endpoint) {
  const auto address = endpoint.address();
  return address.is_v6() ? absl::StrCat("[", address.to_string(), "]:", endpoint.port())
                         : absl::StrCat(address.to_string(), ":", endpoint.port());
}

std::string FormatSocketAddress(const boost::asio::generic::stream_protocol::endpoint& endpoint) {
  const int family = endpoint.data()->sa_family;
  if (family == AF_INET || family == AF_INET6) {
    tcp::endpoint ip;
    std::memcpy(ip.data(), endpoint.data(), std::min(endpoint.size(), ip.capacity()));
    return FormatSocketAddress(ip);
  }
  constexpr size_t kPathAt = offsetof(sockaddr_un, sun_path);
  if (family != AF_UNIX || endpoint.size() <= kPathAt) return "";
  const absl::string_view path(reinterpret_cast<const char*>(endpoint.data()) + kPathAt, endpoint.size() - kPathAt);
  if (path.front() == '\0') return absl::StrCat("unix-abstract:", path.substr(1));
  return absl::StrCat("unix:", path.substr(0, path.find('\0')));
}

}  // namespace sluice
