#pragma once

#include <optional>
#include <string_view>

#include "lib/tcp/tcp_socket.h"

namespace sluice {

// Parses gRPC's name for the other end of a connection: "ipv4:10.0.0.1:20000", "ipv6:[::1]:20000", or in newer versions
// "ipv6:%5B::1%5D:20000". Returns nothing for other names, such as "unix:". An IPv4-mapped IPv6 address becomes IPv4.
std::optional<TcpEndpoint> ParsePeerName(std::string_view peer);

}  // namespace sluice
