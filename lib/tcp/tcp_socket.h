#pragma once

#include <cstdint>
#include <utility>  // Boost 1.74 misses it in C++20

#include <boost/asio/ip/tcp.hpp>

#include "lib/tcp/tcp_info.h"

namespace sluice {

using TcpEndpoint = boost::asio::ip::tcp::endpoint;

// One TCP connection of this host. A plain value.
struct TcpSocket {
  uint64_t inode = 0;  // identifies the socket while it is open
  // IPv4-mapped IPv6 addresses are given as IPv4.
  TcpEndpoint local;
  TcpEndpoint remote;
  TcpInfo info;
  // Packets have arrived behind a missing packet, and wait for it in the receive queue. Only SocketDiag sets it.
  bool misses_packet = false;
};

}  // namespace sluice
