#pragma once

#include <optional>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "gtest/gtest.h"
#include "lib/tcp/tcp_connection.h"

namespace sluice::testing {

// Returns the other end of a TCP connection with both ends in this process; -1 if it does not exist. Call it on the
// thread that closes sockets: it checks all descriptors of the process, and another thread could close one during the
// check.
inline int FarEnd(int fd) {
  constexpr int kDescriptors = 1024;
  const std::optional<TcpSocket> near = DescribeTcp(fd);
  if (!near.has_value()) return -1;
  for (int other = 0; other < kDescriptors; ++other) {
    const std::optional<TcpSocket> far = DescribeTcp(other);
    if (far.has_value() && far->local == near->remote && far->remote == near->local) return other;
  }
  return -1;
}

// Returns an integer option of a socket.
inline int SocketOption(int fd, int level, int option) {
  int value = -1;
  socklen_t bytes = sizeof(value);
  EXPECT_EQ(getsockopt(fd, level, option, &value, &bytes), 0);
  return value;
}

}  // namespace sluice::testing
