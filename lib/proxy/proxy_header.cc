#include "lib/proxy/proxy_header.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice {
namespace {

constexpr absl::string_view kSignature("\r\n\r\n\0\r\nQUIT\n", 12);
constexpr char kVersion2Proxy = 0x21;  // version 2, command PROXY
constexpr char kUnknown = 0x00;
constexpr char kTcpOverIpv4 = 0x11;
constexpr char kTcpOverIpv6 = 0x21;

std::string BigEndian(uint16_t number) {
  return {static_cast<char>(number >> 8), static_cast<char>(number & 0xff)};
}

std::string BytesOf(const boost::asio::ip::address& address) {
  const auto text = [](const auto& bytes) { return std::string(bytes.begin(), bytes.end()); };
  return address.is_v4() ? text(address.to_v4().to_bytes()) : text(address.to_v6().to_bytes());
}

std::string TextHeader(const TcpEndpoint& source, const TcpEndpoint& destination) {
  return absl::StrCat("PROXY ", source.address().is_v4() ? "TCP4 " : "TCP6 ", source.address().to_string(), " ",
                      destination.address().to_string(), " ", source.port(), " ", destination.port(), "\r\n");
}

// A scope of an address, as in fe80::1%eth0, has a meaning on this host only.
TcpEndpoint WithoutScope(const TcpEndpoint& endpoint) {
  if (endpoint.address().is_v4()) return endpoint;
  return {boost::asio::ip::address_v6(endpoint.address().to_v6().to_bytes()), endpoint.port()};
}

}  // namespace

std::string ProxyHeader(uint32_t version, const std::optional<TcpEndpoint>& source,
                        const std::optional<TcpEndpoint>& destination) {
  const bool known =
      source.has_value() && destination.has_value() && source->address().is_v4() == destination->address().is_v4();
  if (version == 1) return known ? TextHeader(WithoutScope(*source), WithoutScope(*destination)) : "PROXY UNKNOWN\r\n";
  char family = kUnknown;
  std::string addresses;
  if (known) {
    family = source->address().is_v4() ? kTcpOverIpv4 : kTcpOverIpv6;
    addresses = absl::StrCat(BytesOf(source->address()), BytesOf(destination->address()), BigEndian(source->port()),
                             BigEndian(destination->port()));
  }
  return absl::StrCat(kSignature, std::string{kVersion2Proxy, family},
                      BigEndian(static_cast<uint16_t>(addresses.size())), addresses);
}

}  // namespace sluice
