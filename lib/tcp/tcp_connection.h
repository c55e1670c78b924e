#pragma once

#include <optional>

#include "lib/tcp/tcp_socket.h"

namespace sluice {

// Functions on the TCP sockets of a link's connections.

// Sets the options of a socket before it connects: small frames leave at once, and a peer that disappears is noticed
// within 10 s. `random` is from 0 to 1; `receive_buffer_bytes` is as in Executor::ConnectOptions. If the kernel refuses
// an option, the connection goes without it.
void SetUpTcp(int fd, double random, int receive_buffer_bytes = 0);
// Lets the peer of a connected socket take nothing for as long as it likes. One that answers no probe is still noticed.
void LetStall(int fd);

// Describes a connected socket; nothing if it is not TCP or is gone.
std::optional<TcpSocket> DescribeTcp(int fd);
// Reads what the kernel says of a socket. Returns false if the socket is gone.
bool ReadTcpInfo(int fd, TcpInfo& info);

}  // namespace sluice
