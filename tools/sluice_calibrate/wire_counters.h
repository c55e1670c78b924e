#pragma once

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "lib/telemetry/socket_diag.h"

namespace sluice {

// What has arrived on the wire over the TCP connections of this process, by the kernel's counts: payload in order, and
// packets with their headers and Ethernet's. One a probe loop; not thread-safe.
class WireCounters {
 public:
  explicit WireCounters(SocketDiag& socket_diag) : socket_diag_(socket_diag) {}

  // Since the call before, over connections that were there then; 0 at the first.
  absl::StatusOr<int64_t> TakeBytes();

 private:
  SocketDiag& socket_diag_;
  absl::flat_hash_map<uint64_t, int64_t> bytes_by_inode_;
};

// Headers of a full packet of this connection, Ethernet's included.
int64_t HeaderBytes(const TcpInfo& info);

}  // namespace sluice
