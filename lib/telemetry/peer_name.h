#pragma once

#include <optional>
#include <string_view>

#include "lib/telemetry/tcp_socket.h"

namespace sluice {

// The other end of a connection, from gRPC's name for it: "ipv4:10.0.0.1:20000", "ipv6:[::1]:20000", newer versions
// "ipv6:%5B::1%5D:20000". None for what is not TCP, such as "unix:". An IPv4 address in IPv6's clothes is given as
// IPv4.
std::optional<TcpEndpoint> ParsePeerName(std::string_view peer);

}  // namespace sluice
