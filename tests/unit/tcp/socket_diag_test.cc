#include "lib/tcp/socket_diag.h"

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/tcp/tcp_pair.h"

namespace sluice {
namespace {

using boost::asio::ip::address_v4;
using boost::asio::ip::address_v6;
using boost::asio::ip::make_address;
using boost::asio::ip::tcp;

class SocketDiagTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto diag = SocketDiag::Open();
    if (!diag.ok()) GTEST_SKIP() << diag.status();
    diag_ = std::make_unique<SocketDiag>(*std::move(diag));
  }

  // Returns the connections by inode.
  std::map<uint64_t, TcpSocket> OwnConnections() {
    const auto sockets = diag_->OwnConnections();
    EXPECT_TRUE(sockets.ok()) << sockets.status();
    std::map<uint64_t, TcpSocket> by_inode;
    for (const TcpSocket& socket : *sockets) EXPECT_TRUE(by_inode.emplace(socket.inode, socket).second) << "twice";
    return by_inode;
  }

  std::unique_ptr<SocketDiag> diag_;
};

TEST_F(SocketDiagTest, TellsOfBothEndsOfAConnection) {
  TcpPair pair;
  const auto sockets = OwnConnections();
  ASSERT_EQ(sockets.size(), 2u);
  const TcpSocket& client = sockets.at(InodeOf(pair.client()));
  EXPECT_EQ(client.local, pair.client().local_endpoint());
  EXPECT_EQ(client.remote, pair.server().local_endpoint());
  const TcpSocket& server = sockets.at(InodeOf(pair.server()));
  EXPECT_EQ(server.local, pair.server().local_endpoint());
  EXPECT_EQ(server.remote, pair.client().local_endpoint());
}

TEST_F(SocketDiagTest, TellsWhatTcpSaysOfEach) {
  TcpPair pair;
  pair.SendFromClient(100'000);
  pair.SendFromServer(7);
  const auto sockets = OwnConnections();
  const TcpInfo& server = sockets.at(InodeOf(pair.server())).info;
  EXPECT_EQ(server.received_bytes, 100'000u);
  const TcpInfo& client = sockets.at(InodeOf(pair.client())).info;
  EXPECT_EQ(client.received_bytes, 7u);
  EXPECT_GT(client.congestion_window_packets, 0u);
  EXPECT_GT(client.smoothed_rtt, absl::ZeroDuration());
  ASSERT_TRUE(client.min_rtt.has_value());
  EXPECT_LE(*client.min_rtt, client.smoothed_rtt);
  EXPECT_EQ(client.out_of_order_packets, 0u);
}

TEST_F(SocketDiagTest, CountsOnBetweenLooks) {
  TcpPair pair;
  const uint64_t inode = InodeOf(pair.server());
  pair.SendFromClient(1000);
  EXPECT_EQ(OwnConnections().at(inode).info.received_bytes, 1000u);
  pair.SendFromClient(500);
  EXPECT_EQ(OwnConnections().at(inode).info.received_bytes, 1500u);
}

TEST_F(SocketDiagTest, TellsHowLongNothingCame) {
  TcpPair pair;
  pair.SendFromClient(1);
  const auto sent = std::chrono::steady_clock::now();
  const auto deadline = sent + std::chrono::seconds(10);
  // The kernel counts in ticks of up to 10 ms.
  absl::Duration silence;
  while (silence < absl::Milliseconds(50) && std::chrono::steady_clock::now() < deadline) {
    silence = OwnConnections().at(InodeOf(pair.server())).info.since_data_received;
    std::this_thread::yield();
  }
  EXPECT_GE(silence, absl::Milliseconds(50));
  EXPECT_LE(silence, absl::FromChrono(std::chrono::steady_clock::now() - sent) + absl::Milliseconds(20));
}

class SocketDiagIpv6Test : public SocketDiagTest {
 protected:
  void SetUp() override {
    boost::asio::io_context context;
    tcp::acceptor acceptor(context);
    boost::system::error_code error;
    acceptor.open(tcp::v6(), error);
    if (!error) acceptor.bind({address_v6::loopback(), 0}, error);
    if (error) GTEST_SKIP() << "no IPv6 on loopback: " << error.message();
    SocketDiagTest::SetUp();
  }
};

TEST_F(SocketDiagIpv6Test, TellsOfIpv6) {
  TcpPair pair(address_v6::loopback());
  pair.SendFromClient(10);
  const auto sockets = OwnConnections();
  ASSERT_EQ(sockets.size(), 2u);
  const TcpSocket& server = sockets.at(InodeOf(pair.server()));
  EXPECT_EQ(server.local, pair.server().local_endpoint());
  EXPECT_EQ(server.local.address(), make_address("::1"));
  EXPECT_EQ(server.remote, pair.client().local_endpoint());
  EXPECT_EQ(server.info.received_bytes, 10u);
}

TEST_F(SocketDiagIpv6Test, GivesAnIpv4AddressThatAnIpv6SocketStandsForAsIpv4) {
  const TcpPair::Address mapped = make_address_v6(boost::asio::ip::v4_mapped, address_v4::loopback());
  TcpPair pair(mapped);
  ASSERT_TRUE(pair.server().local_endpoint().address().is_v6());
  const auto sockets = OwnConnections();
  ASSERT_EQ(sockets.size(), 2u);
  const TcpSocket& client = sockets.at(InodeOf(pair.client()));
  EXPECT_EQ(client.local, tcp::endpoint(address_v4::loopback(), pair.client().local_endpoint().port()));
  EXPECT_EQ(client.remote, tcp::endpoint(address_v4::loopback(), pair.server().local_endpoint().port()));
}

TEST_F(SocketDiagIpv6Test, TellsOfAnIpv4ClientOfAnIpv6Server) {
  TcpPair pair(address_v6::any(), address_v4::loopback());
  const auto sockets = OwnConnections();
  ASSERT_EQ(sockets.size(), 2u);
  EXPECT_EQ(sockets.at(InodeOf(pair.client())).local, sockets.at(InodeOf(pair.server())).remote);
  EXPECT_EQ(sockets.at(InodeOf(pair.client())).remote, sockets.at(InodeOf(pair.server())).local);
}

TEST_F(SocketDiagTest, PassesOverListenersAndConnectionsThatNobodyHasAccepted) {
  boost::asio::io_context context;
  tcp::acceptor acceptor(context, {address_v4::loopback(), 0});
  EXPECT_TRUE(OwnConnections().empty());
  tcp::socket client(context);
  client.connect(acceptor.local_endpoint());
  const auto sockets = OwnConnections();
  EXPECT_EQ(sockets.size(), 1u);
  EXPECT_TRUE(sockets.contains(InodeOf(client)));
}

TEST_F(SocketDiagTest, AConnectionThatIsClosedIsGone) {
  TcpPair stays;
  auto goes = std::make_unique<TcpPair>();
  EXPECT_EQ(OwnConnections().size(), 4u);
  goes.reset();
  const auto sockets = OwnConnections();
  EXPECT_EQ(sockets.size(), 2u);
  EXPECT_TRUE(sockets.contains(InodeOf(stays.client())));
}

TEST_F(SocketDiagTest, AnEndThatIsStillOpenStaysWhenTheOtherHasClosed) {
  TcpPair pair;
  pair.SendFromServer(20);
  pair.server().close();
  const auto sockets = OwnConnections();
  ASSERT_EQ(sockets.size(), 1u);
  EXPECT_GE(sockets.at(InodeOf(pair.client())).info.received_bytes, 20u);  // the kernel counts the end as one more
}

// A descriptor's number does not identify a socket: the number may be reused for another.
TEST_F(SocketDiagTest, ADescriptorThatIsUsedAgainIsAnotherConnection) {
  auto pair = std::make_unique<TcpPair>();
  pair->SendFromClient(1000);
  const int descriptor = pair->server().native_handle();
  const uint64_t first = InodeOf(pair->server());
  EXPECT_EQ(OwnConnections().at(first).info.received_bytes, 1000u);
  pair.reset();
  pair = std::make_unique<TcpPair>();
  ASSERT_EQ(pair->server().native_handle(), descriptor);
  const auto sockets = OwnConnections();
  EXPECT_EQ(sockets.size(), 2u);
  EXPECT_FALSE(sockets.contains(first));
  EXPECT_EQ(sockets.at(InodeOf(pair->server())).info.received_bytes, 0u);
}

TEST_F(SocketDiagTest, TellsOfManyConnectionsInOneAnswer) {
  std::deque<TcpPair> pairs(300);
  std::set<uint64_t> inodes;
  for (TcpPair& pair : pairs) {
    inodes.insert(InodeOf(pair.client()));
    inodes.insert(InodeOf(pair.server()));
  }
  std::set<uint64_t> seen;
  for (const auto& [inode, socket] : OwnConnections()) seen.insert(inode);
  EXPECT_EQ(seen.size(), 600u);
  EXPECT_EQ(seen, inodes);
}

// A process with its own connection, which lives until it is released.
class OtherProcess {
 public:
  OtherProcess() {
    int to_parent[2];
    int to_child[2];
    EXPECT_EQ(pipe(to_parent), 0);
    EXPECT_EQ(pipe(to_child), 0);
    process_ = fork();
    if (process_ == 0) {
      close(to_child[1]);
      TcpPair pair;
      const uint16_t port = pair.client().local_endpoint().port();
      char end = 0;
      if (write(to_parent[1], &port, sizeof(port)) == sizeof(port)) end = static_cast<char>(read(to_child[0], &end, 1));
      _exit(end);
    }
    close(to_parent[1]);
    close(to_child[0]);
    let_go_ = to_child[1];
    EXPECT_EQ(read(to_parent[0], &port_, sizeof(port_)), static_cast<ssize_t>(sizeof(port_)));
    close(to_parent[0]);
  }
  ~OtherProcess() {
    close(let_go_);
    EXPECT_EQ(waitpid(process_, nullptr, 0), process_);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  uint16_t port() const { return port_; }

 private:
  pid_t process_ = -1;
  int let_go_ = -1;
  uint16_t port_ = 0;
};

TEST_F(SocketDiagTest, PassesOverConnectionsOfOtherProcesses) {
  OtherProcess other;
  ASSERT_NE(other.port(), 0);
  EXPECT_TRUE(OwnConnections().empty());
  TcpPair pair;
  for (int look = 0; look < 2; ++look) {
    const auto sockets = OwnConnections();
    EXPECT_EQ(sockets.size(), 2u);
    for (const auto& [inode, socket] : sockets) {
      EXPECT_NE(socket.local.port(), other.port());
      EXPECT_NE(socket.remote.port(), other.port());
    }
  }
}

TEST_F(SocketDiagTest, FindsWhatIsOpenedAfterOthersWerePassedOver) {
  OtherProcess first;
  TcpPair before;
  EXPECT_EQ(OwnConnections().size(), 2u);
  OtherProcess second;
  TcpPair after;
  const auto sockets = OwnConnections();
  EXPECT_EQ(sockets.size(), 4u);
  EXPECT_TRUE(sockets.contains(InodeOf(before.server())));
  EXPECT_TRUE(sockets.contains(InodeOf(after.server())));
}

TEST_F(SocketDiagTest, SlicesHaveTheConnectionsOfAllProcesses) {
  OtherProcess other;
  std::deque<TcpPair> pairs(600);
  std::set<uint64_t> inodes;
  std::set<uint16_t> ports;
  size_t slices = 0;
  const absl::Status read = diag_->ForEachSlice([&](absl::Span<const TcpSocket> sockets) {
    ++slices;
    for (const TcpSocket& socket : sockets) {
      EXPECT_TRUE(inodes.insert(socket.inode).second) << "twice";
      ports.insert(socket.local.port());
      EXPECT_FALSE(socket.misses_packet);
    }
  });
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_GT(slices, 1u);
  EXPECT_TRUE(ports.contains(other.port()));
  for (TcpPair& pair : pairs) {
    EXPECT_TRUE(inodes.contains(InodeOf(pair.client())));
    EXPECT_TRUE(inodes.contains(InodeOf(pair.server())));
  }
}

TEST_F(SocketDiagTest, AsksOnAfterItWasMoved) {
  TcpPair pair;
  EXPECT_EQ(OwnConnections().size(), 2u);
  SocketDiag moved = std::move(*diag_);
  auto sockets = moved.OwnConnections();
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  EXPECT_EQ(sockets->size(), 2u);
  *diag_ = std::move(moved);
  EXPECT_EQ(OwnConnections().size(), 2u);
}

}  // namespace
}  // namespace sluice
