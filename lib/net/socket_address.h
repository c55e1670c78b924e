#pragma once

#include <string>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "absl/status/statusor.h"

namespace sluice {

// Functions between the addresses of sockets as text and as the kernel takes them: "10.0.0.1:7000", "[::1]:7000",
// "unix:PATH", "unix-abstract:NAME".

// Returns InvalidArgument for any other text, including host names. For kListen, port 0 is valid, "localhost" is
// 127.0.0.1, and "*:7000" or ":7000" is all addresses: [::] with both families, or 0.0.0.0 on a host without IPv6.
enum class SocketUse { kConnect, kListen };
absl::StatusOr<boost::asio::generic::stream_protocol::endpoint> ParseSocketAddress(const std::string& text,
                                                                                   SocketUse use);

// Returns the address of TCP of an admin server: "host:port" as for kListen, or with a name, which it looks up at the
// name servers. Returns InvalidArgument for any other text, Unavailable for a name without an address.
absl::StatusOr<boost::asio::ip::tcp::endpoint> ResolveListenAddress(const std::string& text);

std::string FormatSocketAddress(const boost::asio::ip::tcp::endpoint& endpoint);
// The address of any socket: empty for an unnamed Unix socket, and for other protocols.
std::string FormatSocketAddress(const boost::asio::generic::stream_protocol::endpoint& endpoint);

}  // namespace sluice
