#include "lib/tcp/peer_name.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace sluice {

std::optional<TcpEndpoint> ParsePeerName(std::string_view name) {
  absl::string_view peer(name.data(), name.size());
  const bool v6 = absl::ConsumePrefix(&peer, "ipv6:");
  if (!v6 && !absl::ConsumePrefix(&peer, "ipv4:")) return std::nullopt;
  const size_t colon = peer.rfind(':');
  uint32_t port = 0;
  if (colon == peer.npos || !absl::SimpleAtoi(peer.substr(colon + 1), &port) || port > 65535) return std::nullopt;
  absl::string_view host = peer.substr(0, colon);
  if (v6 && !((absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]")) ||
              (absl::ConsumePrefix(&host, "%5B") && absl::ConsumeSuffix(&host, "%5D")))) {
    return std::nullopt;
  }
  boost::system::error_code error;
  boost::asio::ip::address address = boost::asio::ip::make_address(absl::StrReplaceAll(host, {{"%25", "%"}}), error);
  if (error || address.is_v6() != v6) return std::nullopt;
  if (v6 && address.to_v6().is_v4_mapped()) {
    address = boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6());
  }
  return TcpEndpoint(address, static_cast<uint16_t>(port));
}

}  // namespace sluice
