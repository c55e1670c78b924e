#pragma once

#include <optional>

#include "lib/telemetry/tcp_socket.h"

namespace sluice {

// What a link does to the TCP sockets of its connections.

// Before it connects: small frames leave at once, and a peer that goes without a word is found within 10 s. `random`:
// from 0 to 1. A kernel that refuses an option is no reason to do without the connection.
void SetUpTcp(int fd, double random);

// Names a connected socket. None: it is not TCP, or is gone.
std::optional<TcpSocket> DescribeTcp(int fd);
// What the kernel says of it now. False: it is gone.
bool ReadTcpInfo(int fd, TcpInfo& info);

}  // namespace sluice
