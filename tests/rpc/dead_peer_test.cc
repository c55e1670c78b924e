#include "lib/rpc/dead_peer.h"

#include <set>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace sluice {
namespace {

int Option(int fd, int level, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  EXPECT_EQ(getsockopt(fd, level, option, &value, &size), 0);
  return value;
}

// That a connection ends in time takes a network that is cut: tests/apps/sluice_following_test.py.
TEST(DeadPeerTest, ThreeProbesFitBetweenTheQuietAndTheEnd) {
  for (const int family : {AF_INET, AF_INET6}) {
    const int fd = socket(family, SOCK_STREAM, 0);
    ASSERT_GE(fd, 0);
    EXPECT_TRUE(NoticeDeadPeer(fd));
    EXPECT_EQ(Option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 10'000);
    EXPECT_EQ(Option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(Option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 1);
    EXPECT_LE(Option(fd, IPPROTO_TCP, TCP_KEEPIDLE) + 3, 10);
    close(fd);
  }
}

TEST(DeadPeerTest, ConnectionsDoNotAllProbeAtOnce) {
  std::vector<int> sockets;
  std::set<int> quiet_seconds;
  for (int i = 0; i < 8; ++i) {
    sockets.push_back(socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_TRUE(NoticeDeadPeer(sockets.back()));
    quiet_seconds.insert(Option(sockets.back(), IPPROTO_TCP, TCP_KEEPIDLE));
  }
  EXPECT_EQ(quiet_seconds.size(), 4u);
  for (const int fd : sockets) close(fd);
}

TEST(DeadPeerTest, LeavesUnixSocketsAlone) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  EXPECT_TRUE(NoticeDeadPeer(fd));
  EXPECT_EQ(Option(fd, SOL_SOCKET, SO_KEEPALIVE), 0);
  close(fd);
}

}  // namespace
}  // namespace sluice
