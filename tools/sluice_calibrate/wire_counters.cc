#include "tools/sluice_calibrate/wire_counters.h"

#include <utility>
#include <vector>

namespace sluice {
namespace {

constexpr int64_t kEthernetHeaderBytes = 14;
constexpr int64_t kIpv4HeaderBytes = 20;
constexpr int64_t kIpv6HeaderBytes = 40;
constexpr int64_t kTcpHeaderBytes = 20;
constexpr int64_t kTimestampBytes = 12;
constexpr int kAttempts = 3;
constexpr auto kTypicalTime = std::chrono::microseconds(300);

}  // namespace

int64_t HeaderBytes(const TcpSocket& socket) {
  const int64_t ip = socket.remote.address().is_v6() ? kIpv6HeaderBytes : kIpv4HeaderBytes;
  return kEthernetHeaderBytes + ip + kTcpHeaderBytes + (socket.info.timestamps ? kTimestampBytes : 0);
}

absl::StatusOr<WireCounters::Reading> WireCounters::Read() {
  absl::StatusOr<std::vector<TcpSocket>> sockets;
  std::chrono::steady_clock::time_point time;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto begin = std::chrono::steady_clock::now();
    sockets = socket_diag_.OwnConnections();
    if (!sockets.ok()) return sockets.status();
    const auto taken = std::chrono::steady_clock::now() - begin;
    time = begin + taken / 2;
    if (taken <= kTypicalTime) break;
  }
  absl::flat_hash_map<uint64_t, int64_t> now;
  Reading reading = {.time = time};
  for (const TcpSocket& socket : *sockets) {
    const TcpInfo& info = socket.info;
    const int64_t bytes =
        static_cast<int64_t>(info.received_bytes) + int64_t{info.received_packets} * HeaderBytes(socket);
    now[socket.inode] = bytes;
    if (const auto before = bytes_by_inode_.find(socket.inode); before != bytes_by_inode_.end()) {
      reading.bytes += bytes - before->second;
    }
  }
  bytes_by_inode_ = std::move(now);
  return reading;
}

}  // namespace sluice
