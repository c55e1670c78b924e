#include "lib/rpc/receive_window.h"

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <netinet/tcp.h>

#include "sluice/block_reader.h"
#include "sluice/link.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lib/rpc/worker_channels.h"
#include "tests/blocks/test_cluster.h"
#include "tests/link/silent_listener.h"

namespace sluice {
namespace {

using testing::SilentListener;

constexpr ReceiveWindow kWindow = {.bytes = 20272, .packet_payload_bytes = 1000};

TEST(DefaultReceiveWindowTest, IsTwoThirdsOfTheBudgetInWholePackets) {
  const LinkProfile profile;
  EXPECT_EQ(DefaultReceiveWindowBytes(profile, 32 * 1024), 14 * 1448);
  EXPECT_EQ(DefaultReceiveWindowBytes(profile, 3 * 100 * 1514), 200 * 1448);
  // A budget of packets is one of full frames.
  EXPECT_EQ(DefaultReceiveWindowBytes(LinkProfile{.buffer_bytes = 0, .buffer_packets = 30}, 30 * 1514), 20 * 1448);
}

TEST(DefaultReceiveWindowTest, IsEightPacketsOfASmallerBudgetAndNoneOfATinyOne) {
  const LinkProfile profile;
  EXPECT_EQ(DefaultReceiveWindowBytes(profile, 8 * 1514), 8 * 1448);
  EXPECT_EQ(DefaultReceiveWindowBytes(profile, 8 * 1514 - 1), 0);
  EXPECT_EQ(DefaultReceiveWindowBytes(profile, 1), 0);
  EXPECT_EQ(DefaultReceiveWindowBytes({.packet_payload_bytes = 100, .frame_bytes = 166}, 16600), 0) << "below 8 KiB";
}

TEST(DefaultReceiveWindowTest, IsNoneWhereTheKernelWouldNotGiveIt) {
  const LinkProfile profile;
  EXPECT_GT(DefaultReceiveWindowBytes(profile, 660'000), 400'000);
  EXPECT_EQ(DefaultReceiveWindowBytes(profile, 680'000), 0);
  EXPECT_EQ(DefaultReceiveWindowBytes(profile, std::numeric_limits<int64_t>::max()), 0);
}

// 0 where it is no connection. gRPC uses IPv6 sockets for IPv4, too.
int PeerPort(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return 0;
  if (peer.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(peer).sin_port);
  if (peer.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(peer).sin6_port);
  return 0;
}

// The socket of this process that is connected to the listener.
std::optional<int> FindConnection(const SilentListener& listener) {
  const std::string address = listener.address();
  const int port = std::atoi(address.substr(address.rfind(':') + 1).c_str());
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (PeerPort(fd) == port) return fd;
  }
  return std::nullopt;
}

class ReceiveWindowTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CanBoundReceiveWindow()) GTEST_SKIP() << "no way to the sockets of this version of gRPC";
  }

  std::shared_ptr<grpc::Channel> BoundChannel() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    BoundReceiveWindow(kWindow, arguments);
    return grpc::CreateCustomChannel(listener_.address(), grpc::InsecureChannelCredentials(), arguments);
  }

  // The socket that gRPC has connected to the listener.
  int AwaitConnection() {
    std::optional<int> fd;
    EXPECT_TRUE(testing::Eventually([&] { return (fd = FindConnection(listener_)).has_value(); }));
    return fd.value_or(-1);
  }

  SilentListener listener_;
};

int BufferBytes(int fd) {
  int bytes = 0;
  socklen_t size = sizeof(bytes);
  EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &size), 0);
  return bytes;
}

TEST_F(ReceiveWindowTest, IsTheSizeOfTheBufferOfTheSocketThatAChannelConnects) {
  const auto channel = BoundChannel();
  channel->GetState(/*try_to_connect=*/true);
  const int fd = AwaitConnection();
  EXPECT_EQ(BufferBytes(fd), kWindow.bytes);
  tcp_info info{};
  socklen_t size = sizeof(info);
  EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
  EXPECT_EQ(info.tcpi_advmss, kWindow.packet_payload_bytes);
  EXPECT_LE(info.tcpi_rcv_ssthresh, kWindow.bytes) << "what the kernel would advertise";
}

TEST_F(ReceiveWindowTest, OutlivesTheArgumentsThatAChannelWasMadeWith) {
  grpc::ChannelArguments copy;
  {
    grpc::ChannelArguments arguments;
    BoundReceiveWindow({.bytes = 8192, .packet_payload_bytes = 1000}, arguments);
    BoundReceiveWindow(kWindow, arguments);  // takes the place of the first
    copy = arguments;
  }
  const auto channel = grpc::CreateCustomChannel(listener_.address(), grpc::InsecureChannelCredentials(), copy);
  channel->GetState(/*try_to_connect=*/true);
  EXPECT_EQ(BufferBytes(AwaitConnection()), kWindow.bytes);
}

TEST_F(ReceiveWindowTest, IsThatOfEveryConnectionOfAWorkerChannelButOverLoopback) {
  WorkerTable table;
  const WorkerChannels::Options options{.receive_window = kWindow};
  {
    // A name that nobody has resolved yet may be anywhere.
    const WorkerChannels remote({"dns:///" + listener_.address()}, table, options);
    remote.Connect(absl::Milliseconds(100));
    EXPECT_EQ(BufferBytes(AwaitConnection()), kWindow.bytes);
  }
  SilentListener other;
  const WorkerChannels local({other.address()}, table, options);
  local.Connect(absl::Milliseconds(100));
  std::optional<int> fd;
  ASSERT_TRUE(testing::Eventually([&] { return (fd = FindConnection(other)).has_value(); }));
  EXPECT_GT(BufferBytes(*fd), kWindow.bytes);
}

TEST_F(ReceiveWindowTest, LargeAnswersComeThroughIt) {
  const testing::TemporaryFolder folder;
  std::string data(1 << 20, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * i / 7);
  ASSERT_TRUE(
      testing::StripeBytes(data, {.root = folder.path(), .file = "f", .workers = 1, .sru_bytes = 1 << 20}).ok());
  testing::TestWorker worker(folder.path());
  const auto link = Link::Create({.receive_window_bytes = kWindow.bytes});
  ASSERT_TRUE(link.ok());
  auto reader = BlockReader::Create(*link, {.workers = {"dns:///" + worker.address()}});
  ASSERT_TRUE(reader.ok());
  const auto block = (*reader)->Read("f", 0);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_EQ(block->data, data);
}

}  // namespace
}  // namespace sluice
