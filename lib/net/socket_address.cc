#include "lib/net/socket_address.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <boost/asio/local/stream_protocol.hpp>
#include <sys/un.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/net/host_port.h"

namespace sluice {
namespace {

constexpr size_t kMaxUnixBytes = sizeof(sockaddr_un::sun_path) - 1;

}  // namespace

absl::StatusOr<boost::asio::generic::stream_protocol::endpoint> ParseSocketAddress(const std::string& text,
                                                                                   SocketUse use) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:") || absl::ConsumePrefix(&rest, "unix-abstract:")) {
    const absl::string_view abstract = absl::StartsWith(text, "unix:") ? "" : absl::string_view("\0", 1);
    if (!rest.empty() && rest.size() <= kMaxUnixBytes) {
      return boost::asio::local::stream_protocol::endpoint(absl::StrCat(abstract, rest));
    }
  } else if (const absl::StatusOr<HostPort> parsed = ParseHostPort(text);
             parsed.ok() && (parsed->port != 0 || use == SocketUse::kListen)) {
    boost::system::error_code bad;
    const auto ip = boost::asio::ip::make_address(parsed->host, bad);
    if (!bad) return boost::asio::ip::tcp::endpoint(ip, static_cast<uint16_t>(parsed->port));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\" is neither an IP address with a port nor a Unix socket with 1 to ", kMaxUnixBytes, " bytes"));
}

std::string FormatSocketAddress(const boost::asio::ip::tcp::endpoint& endpoint) {
  const auto address = endpoint.address();
  return address.is_v6() ? absl::StrCat("[", address.to_string(), "]:", endpoint.port())
                         : absl::StrCat(address.to_string(), ":", endpoint.port());
}

std::string FormatSocketAddress(const boost::asio::generic::stream_protocol::endpoint& endpoint) {
  const int family = endpoint.data()->sa_family;
  if (family == AF_INET || family == AF_INET6) {
    boost::asio::ip::tcp::endpoint tcp;
    std::memcpy(tcp.data(), endpoint.data(), std::min(endpoint.size(), tcp.capacity()));
    return FormatSocketAddress(tcp);
  }
  constexpr size_t kPathAt = offsetof(sockaddr_un, sun_path);
  if (family != AF_UNIX || endpoint.size() <= kPathAt) return "";
  const absl::string_view path(reinterpret_cast<const char*>(endpoint.data()) + kPathAt, endpoint.size() - kPathAt);
  if (path.front() == '\0') return absl::StrCat("unix-abstract:", path.substr(1));
  return absl::StrCat("unix:", path.substr(0, path.find('\0')));
}

}  // namespace sluice
