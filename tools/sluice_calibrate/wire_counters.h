#pragma once

#include <chrono>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "lib/tcp/socket_diag.h"

namespace sluice {

// Counts the bytes that have arrived on the wire over the TCP connections of this process. It uses the kernel's counts:
// payload in order, and packets with their headers and Ethernet's. There is one for each probe loop. Not thread-safe.
class WireCounters {
 public:
  explicit WireCounters(SocketDiag& socket_diag) : socket_diag_(socket_diag) {}

  struct Reading {
    int64_t bytes = 0;  // since the previous reading, over connections that existed then; 0 at the first reading
    std::chrono::steady_clock::time_point time;
  };
  // Reads again if the thread was delayed during the reading, so that the time matches the counts.
  absl::StatusOr<Reading> Read();

 private:
  SocketDiag& socket_diag_;
  absl::flat_hash_map<uint64_t, int64_t> bytes_by_inode_;
};

// Returns the header bytes of a data packet of this connection, including Ethernet's.
int64_t HeaderBytes(const TcpSocket& socket);

}  // namespace sluice
