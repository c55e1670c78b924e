#include "lib/sharing/packet_socket.h"

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sluice/v1/link_sharing.pb.h"

#include "lib/net/passed_sockets.h"
#include "tests/unit/sharing/sharing_process.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

mode_t ModeOf(const std::string& path) {
  struct stat found {};
  EXPECT_EQ(stat(path.c_str(), &found), 0);
  return found.st_mode & 0777;
}

// Leaves a socket file behind, as a killed process does.
void LeaveSocketFile(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  close(fd);
}

TEST(ListeningSocketTest, AFileThatWasLeftIsTakenOverAndOneInUseIsNot) {
  const std::string path = SocketPath();
  LeaveSocketFile(path);
  EXPECT_FALSE(ConnectPacketSocket(path).ok());
  const auto first = ListeningSocket::Open(path, 0600, std::nullopt);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = ListeningSocket::Open(path, 0600, std::nullopt);
  EXPECT_EQ(second.status(), absl::FailedPreconditionError("another process serves on " + path));
  const absl::StatusOr<int> connected = ConnectPacketSocket(path);
  ASSERT_TRUE(connected.ok()) << connected.status();
  close(*connected);
}

TEST(ListeningSocketTest, TheFileHasItsModeWhateverTheUmaskAndGoesWithTheSocket) {
  const std::string path = SocketPath();
  const mode_t umask_before = umask(077);
  {
    const auto socket = ListeningSocket::Open(path, 0660, getgid());
    ASSERT_TRUE(socket.ok()) << socket.status();
    EXPECT_EQ(ModeOf(path), 0660u);
  }
  umask(umask_before);
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  EXPECT_TRUE(ListeningSocket::Open(path, 0600, std::nullopt).ok());
}

// A process that starts others has opened the socket.
class PassedPacketSocketTest : public ::testing::Test {
 protected:
  static constexpr int kFirst = 200;  // the lower numbers are in use

  void SetUp() override {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(dup2(fd, kFirst), kFirst);
    close(fd);
    starter_ = fork();
    if (starter_ == 0) _exit(listen(kFirst, 16));
    int status = -1;
    ASSERT_EQ(waitpid(starter_, &status, 0), starter_);
    ASSERT_EQ(status, 0);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
    auto passed = PassedSockets::FromEnvironment(kFirst);
    ASSERT_TRUE(passed.ok()) << passed.status();
    passed_ = *std::move(passed);
  }
  void TearDown() override { unlink(path_.c_str()); }

  const std::string path_ = SocketPath();
  pid_t starter_ = 0;
  std::unique_ptr<PassedSockets> passed_;
};

TEST_F(PassedPacketSocketTest, IsUsedAndItsFileStays) {
  const int early = ConnectPacketSocket(path_).value();
  {
    const auto listening = ListeningSocket::Open(path_, 0600, std::nullopt, passed_.get());
    ASSERT_TRUE(listening.ok()) << listening.status();
    EXPECT_EQ(listening->fd(), kFirst);
    EXPECT_TRUE(passed_->Check({}).ok()) << "it was taken";
    EXPECT_EQ(ListeningSocket::Open(path_, 0600, std::nullopt).status(),
              absl::FailedPreconditionError("another process serves on " + path_));
    const absl::StatusOr<int> accepted = AcceptPacketSocket(listening->fd());
    ASSERT_TRUE(accepted.ok()) << accepted.status();
    close(*accepted);
    EXPECT_TRUE(absl::IsNotFound(AcceptPacketSocket(listening->fd()).status())) << "it must not wait";
  }
  EXPECT_EQ(access(path_.c_str(), F_OK), 0);
  close(early);
}

TEST_F(PassedPacketSocketTest, ProcessesSeeTheUserOfTheDaemonAndNotOfItsStarter) {
  const auto listening = ListeningSocket::Open(path_, 0600, std::nullopt, passed_.get());
  ASSERT_TRUE(listening.ok()) << listening.status();
  const int process = ConnectPacketSocket(path_).value();
  const absl::StatusOr<PeerCredentials> daemon = PeerOf(process);
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  EXPECT_EQ(daemon->pid, getpid()) << "the starter was " << starter_;
  close(process);
}

TEST_F(PassedPacketSocketTest, AtADifferentPathIsLeft) {
  const std::string other = path_ + "2";
  const auto listening = ListeningSocket::Open(other, 0600, std::nullopt, passed_.get());
  ASSERT_TRUE(listening.ok()) << listening.status();
  EXPECT_FALSE(passed_->Check({}).ok());
}

TEST(ListeningSocketTest, WhatIsNotASocketIsLeftAlone) {
  const std::string path = SocketPath();
  std::ofstream(path) << "precious";
  EXPECT_EQ(ListeningSocket::Open(path, 0600, std::nullopt).status(),
            absl::FailedPreconditionError(path + " is there and is not a socket"));
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "precious");
  unlink(path.c_str());
}

TEST(ListeningSocketTest, AFolderThatIsNotThereIsNamed) {
  const absl::Status status = ListeningSocket::Open("/nowhere/link.sock", 0600, std::nullopt).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/link.sock.lock"));
}

TEST(CheckSocketPathTest, NamesTheFieldAndTheBound) {
  EXPECT_EQ(CheckSocketPath("socket", "/run/link.sock"), absl::OkStatus());
  EXPECT_EQ(CheckSocketPath("socket", ""), absl::InvalidArgumentError("socket is empty; give a path"));
  EXPECT_THAT(std::string(CheckSocketPath("socket", std::string(108, 'x')).message()),
              HasSubstr("has 108 bytes; the path of a Unix socket has at most 107"));
}

TEST(PacketTest, KeepsItsBoundariesAndTellsOfTheEnd) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
  v1::ToLinkDaemon message;
  EXPECT_EQ(ReceivePacket(fds[1], message).value(), false);
  for (const char* application : {"a", "b"}) {
    message.mutable_hello()->set_application(application);
    EXPECT_EQ(SendPacket(fds[0], message), absl::OkStatus());
  }
  for (const char* application : {"a", "b"}) {
    ASSERT_EQ(ReceivePacket(fds[1], message).value(), true);
    EXPECT_EQ(message.hello().application(), application);
  }
  close(fds[0]);
  EXPECT_EQ(ReceivePacket(fds[1], message).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(SendPacket(fds[1], message).code(), absl::StatusCode::kUnavailable);
  close(fds[1]);
}

TEST(PacketTest, APeerThatDoesNotReadCostsNothingButTheMessage) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
  v1::ToLinkDaemon message;
  message.mutable_hello()->set_application("a");
  absl::Status sent;
  for (int i = 0; i < 100'000 && sent.ok(); ++i) sent = SendPacket(fds[0], message);
  EXPECT_EQ(sent.code(), absl::StatusCode::kResourceExhausted);
  ASSERT_EQ(ReceivePacket(fds[1], message).value(), true);
  close(fds[0]);
  close(fds[1]);
}

TEST(PeerOfTest, IsWhoConnected) {
  const std::string path = SocketPath();
  const auto listening = ListeningSocket::Open(path, 0600, std::nullopt);
  ASSERT_TRUE(listening.ok()) << listening.status();
  EXPECT_EQ(AcceptPacketSocket(listening->fd()).status().code(), absl::StatusCode::kNotFound);
  const int client = ConnectPacketSocket(path).value();
  const int server = AcceptPacketSocket(listening->fd()).value();
  const auto peer = PeerOf(server);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(peer->pid, getpid());
  EXPECT_EQ(peer->uid, geteuid());
  close(client);
  close(server);
}

}  // namespace
}  // namespace sluice
