#include "lib/rpc/receive_window.h"

#include <algorithm>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "lib/rpc/socket_setup.h"

namespace sluice {
namespace {

// With fewer packets in its window TCP was seen to wait for delayed acknowledgements.
constexpr int64_t kMinPackets = 8;

constexpr int kTimestampBytes = 12;  // of every packet; TCP's maximum segment size includes them

}  // namespace

bool CanBoundReceiveWindow() {
  return CanSetUpSockets();
}

int64_t DefaultReceiveWindowBytes(const LinkProfile& profile, int64_t budget_bytes) {
  const int64_t packets = std::max(budget_bytes / 3 * 2 / profile.frame_bytes, kMinPackets);
  const int64_t packets_at_most =
      std::min(budget_bytes / profile.frame_bytes, kMaxReceiveWindowBytes / profile.packet_payload_bytes);
  if (packets > packets_at_most) return 0;
  const int64_t bytes = packets * profile.packet_payload_bytes;
  return bytes < kMinReceiveWindowBytes ? 0 : bytes;
}

// Before it is connected: then the kernel leaves the buffer at that size. It advertises no more than the buffer, and
// less by what it thinks packets cost in memory. It doubles what it is told.
//
// Rejected: TCP_WINDOW_CLAMP, which is exact; but from Linux 6.6 the kernel sets it anew from the buffer's size.
bool BoundReceiveWindow(const ReceiveWindow& window, int fd) {
  if (!IsTcpOverIp(fd)) return true;
  // Refused where the packets are larger than any (a profile of loopback): then there is nothing to limit.
  SetSocketOption(fd, IPPROTO_TCP, TCP_MAXSEG, static_cast<int>(window.packet_payload_bytes + kTimestampBytes));
  return SetSocketOption(fd, SOL_SOCKET, SO_RCVBUF, static_cast<int>(window.bytes / 2));
}

void BoundReceiveWindow(const ReceiveWindow& window, grpc::ChannelArguments& arguments) {
  SetUpSockets([window](int fd) { return BoundReceiveWindow(window, fd); }, arguments);
}

}  // namespace sluice
