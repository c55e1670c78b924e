#include "lib/net/host_port.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr int kMaxPort = 65535;

absl::Status Refuse(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("\"", std::string(text), "\" ", std::string(why)));
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Refuse(text, "has no port; give host:port");
  HostPort address{.host = std::string(text.substr(0, colon)), .port = 0};
  const std::string port(text.substr(colon + 1));
  // SimpleAtoi would also take a sign and spaces.
  if (port.find_first_not_of("0123456789") != std::string::npos || !absl::SimpleAtoi(port, &address.port) ||
      address.port > kMaxPort) {
    return Refuse(text, "has no port from 0 to 65535 after its last colon; give host:port");
  }
  std::string& host = address.host;
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return Refuse(text, "has an IPv6 address without brackets; give [address]:port");
  }
  if (host.find_first_of("[]/ ") != std::string::npos) return Refuse(text, "has no valid host before its port");
  if (host == "*") host.clear();
  return address;
}

}  // namespace sluice
