#include "lib/rpc/dead_peer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "lib/rpc/socket_setup.h"

namespace sluice {
namespace {

// Not the same for all: the connections of a thousand workers fall quiet together, with the last answer of a block, and
// the answers to their probes would meet in the port's buffer.
constexpr int kQuietSeconds = 4;
constexpr int kMoreQuietSeconds = 3;  // at most
constexpr int kProbeSeconds = 1;

}  // namespace

// TCP_USER_TIMEOUT ends a connection of which something stays unacknowledged for so long, and one that is quiet and
// does not answer its probes. Three of them fit even behind the longest quiet: one may be lost.
//
// Rejected: gRPC's keepalive. A server of gRPC takes a ping in five minutes while nothing is sent, and ends the
// connection of a client that sends more; nobody above TCP sees these probes.
bool NoticeDeadPeer(int fd) {
  if (!IsTcpOverIp(fd)) return true;
  const int quiet = kQuietSeconds + fd % (kMoreQuietSeconds + 1);
  return SetSocketOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(kDeadPeerAfter / absl::Milliseconds(1))) &&
         SetSocketOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1) && SetSocketOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, quiet) &&
         SetSocketOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
}

}  // namespace sluice
