#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lib/tcp/tcp_socket.h"

namespace sluice {

// The header of the PROXY protocol with which the proxy begins its connection to a worker that expects one: the
// client's address, and the address to which the client has connected. Without both, or with two families, it says that
// they are unknown. Version 1 is a line of text, version 2 is binary.
std::string ProxyHeader(uint32_t version, const std::optional<TcpEndpoint>& source,
                        const std::optional<TcpEndpoint>& destination);

}  // namespace sluice
