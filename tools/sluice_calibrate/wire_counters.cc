#include "tools/sluice_calibrate/wire_counters.h"

#include <utility>
#include <vector>

namespace sluice {
namespace {

constexpr int64_t kEthernetHeaderBytes = 14;

}  // namespace

int64_t HeaderBytes(const TcpInfo& info) {
  return kEthernetHeaderBytes + info.path_mtu_bytes - info.packet_payload_bytes;
}

absl::StatusOr<int64_t> WireCounters::TakeBytes() {
  const absl::StatusOr<std::vector<TcpSocket>> sockets = socket_diag_.OwnConnections();
  if (!sockets.ok()) return sockets.status();
  absl::flat_hash_map<uint64_t, int64_t> now;
  int64_t arrived = 0;
  for (const TcpSocket& socket : *sockets) {
    const TcpInfo& info = socket.info;
    const int64_t bytes =
        static_cast<int64_t>(info.received_bytes) + int64_t{info.received_packets} * HeaderBytes(info);
    now[socket.inode] = bytes;
    if (const auto before = bytes_by_inode_.find(socket.inode); before != bytes_by_inode_.end()) {
      arrived += bytes - before->second;
    }
  }
  bytes_by_inode_ = std::move(now);
  return arrived;
}

}  // namespace sluice
