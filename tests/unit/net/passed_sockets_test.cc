#include "lib/net/passed_sockets.h"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/asio_executor.h"
#include "lib/net/asio_listener.h"
#include "lib/net/socket_address.h"
#include "tests/has_code.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/test_stream.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::EventLog;
using testing::HasCode;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RunOn;
using testing::TestStream;

constexpr int kFirst = 200;  // the lower numbers are in use

int SocketOn(const std::string& address, int type, int only_ipv6) {
  const auto endpoint = ParseSocketAddress(address, SocketUse::kListen);
  const int fd = socket(endpoint->protocol().family(), type, 0);
  setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_ipv6, sizeof(only_ipv6));  // fails for other families
  EXPECT_EQ(bind(fd, endpoint->data(), static_cast<socklen_t>(endpoint->size())), 0);
  return fd;
}

class PassedSocketsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = std::filesystem::temp_directory_path() / "sluice-passed-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override {
    for (const int fd : passed_) close(fd);  // fails if the object has closed it
    for (const char* name : {"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"}) unsetenv(name);
    std::filesystem::remove_all(folder_);
  }

  // Passes a socket with the next number, and returns its address.
  std::string Pass(const std::string& address, bool listens = true, int type = SOCK_STREAM, bool only_ipv6 = false) {
    const int fd = SocketOn(address, type, only_ipv6 ? 1 : 0);
    EXPECT_EQ(listens ? listen(fd, 16) : 0, 0);
    const int number = kFirst + static_cast<int>(passed_.size());
    EXPECT_EQ(dup2(fd, number), number);
    close(fd);
    passed_.push_back(number);
    boost::asio::generic::stream_protocol::endpoint bound;
    auto size = static_cast<socklen_t>(bound.capacity());
    getsockname(number, bound.data(), &size);
    bound.resize(size);
    return FormatSocketAddress(bound);
  }
  std::string Path(const std::string& name) const { return absl::StrCat("unix:", folder_, "/", name); }

  absl::StatusOr<std::unique_ptr<PassedSockets>> Read(const std::string& names = "") {
    return Read(absl::StrCat(passed_.size()), absl::StrCat(getpid()), names);
  }
  static absl::StatusOr<std::unique_ptr<PassedSockets>> Read(const std::string& count, const std::string& process,
                                                             const std::string& names) {
    setenv("LISTEN_FDS", count.c_str(), 1);
    setenv("LISTEN_PID", process.c_str(), 1);
    setenv("LISTEN_FDNAMES", names.c_str(), 1);
    return PassedSockets::FromEnvironment(kFirst);
  }

  std::string folder_;
  std::vector<int> passed_;
};

TEST_F(PassedSocketsTest, AreTakenByTheirAddressesOnce) {
  const std::string tcp = Pass("127.0.0.1:0");
  const std::string tcp6 = Pass("[::1]:0");
  const std::string path = Pass(Path("socket"));
  const std::string abstract = Pass(absl::StrCat("unix-abstract:passed-", getpid()));
  EXPECT_EQ(path, Path("socket"));
  const auto passed = Read("a:b:c:d");
  ASSERT_TRUE(passed.ok()) << passed.status();
  EXPECT_EQ((*passed)->Take("127.0.0.1:1"), std::nullopt);
  EXPECT_EQ((*passed)->Take(abstract), kFirst + 3);
  EXPECT_EQ((*passed)->Take(tcp), kFirst);
  EXPECT_EQ((*passed)->Take(tcp), std::nullopt);
  EXPECT_EQ((*passed)->Take(path), kFirst + 2);
  EXPECT_EQ((*passed)->Take(tcp6), kFirst + 1);
}

TEST_F(PassedSocketsTest, OneThatIsNotInTheConfigIsNamedWithTheConfig) {
  const std::string grpc = Pass("127.0.0.1:0");
  const std::string admin = Pass("127.0.0.1:0");
  const auto passed = Read("grpc:admin");
  ASSERT_TRUE(passed.ok());
  EXPECT_TRUE((*passed)->Check({{"listen", grpc}, {"admin", admin}}).ok());
  EXPECT_TRUE((*passed)->Check({{"listen", grpc}, {"listen", "[::1]:1"}, {"admin", admin}}).ok()) << "may be opened";
  for (const std::string& other : {grpc, std::string("127.0.0.1:1"), std::string("0.0.0.0") + admin.substr(9)}) {
    const absl::Status refused = (*passed)->Check({{"listen", grpc}, {"admin", other}});
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kFailedPrecondition)) << other;
    EXPECT_THAT(refused.message(),
                AllOf(HasSubstr(absl::StrCat(admin, " (admin) passed by")), HasSubstr(absl::StrCat("admin ", other))));
  }
  EXPECT_THAT((*passed)->Check({{"listen", grpc}, {"admin", ""}}).message(), Not(HasSubstr("admin ;")));
}

TEST_F(PassedSocketsTest, OneOfBothFamiliesServesEachWayToWriteAllAddresses) {
  const std::string all = Pass("[::]:0");
  const std::string port = all.substr(5);
  const std::string local = Pass("127.0.0.1:0");
  const auto passed = Read();
  ASSERT_TRUE(passed.ok());
  for (const char* host : {"[::]", "0.0.0.0", "*", ""}) {
    const std::string name = "localhost" + local.substr(9);
    EXPECT_TRUE((*passed)->Check({{"listen", absl::StrCat(host, ":", port)}, {"admin", name}}).ok()) << host;
  }
  for (const char* host : {"127.0.0.1", "[::1]", "localhost"}) {
    const std::string address = absl::StrCat(host, ":", port);
    EXPECT_THAT((*passed)->Check({{"listen", address}, {"admin", local}}).message(),
                AllOf(HasSubstr(all), HasSubstr(absl::StrCat("listen ", address))));
  }
  EXPECT_EQ((*passed)->Take("127.0.0.1:" + port), std::nullopt);
  EXPECT_EQ((*passed)->Take("0.0.0.0:" + port), kFirst);
}

TEST_F(PassedSocketsTest, OneOfIpv6AloneDoesNotServeIpv4) {
  const std::string all = Pass("[::]:0", /*listens=*/true, SOCK_STREAM, /*only_ipv6=*/true);
  const auto passed = Read();
  ASSERT_TRUE(passed.ok());
  EXPECT_EQ((*passed)->Take("0.0.0.0" + all.substr(4)), std::nullopt);
  EXPECT_EQ((*passed)->Take(all), kFirst);
}

TEST_F(PassedSocketsTest, OneOfPacketsIsTakenByItsType) {
  const std::string path = Pass(Path("socket"), /*listens=*/true, SOCK_SEQPACKET);
  EXPECT_EQ(path, Path("socket"));
  const auto passed = Read("link");
  ASSERT_TRUE(passed.ok()) << passed.status();
  EXPECT_EQ((*passed)->Take(path), std::nullopt);
  EXPECT_THAT((*passed)->Check({{"listen", path}}).message(), HasSubstr(path + " of packets (link)"));
  EXPECT_TRUE((*passed)->Check({{"socket", path, SOCK_SEQPACKET}}).ok());
  EXPECT_EQ((*passed)->Take(path, SOCK_SEQPACKET), kFirst);
}

TEST_F(PassedSocketsTest, ChildProcessesDoNotReceiveThem) {
  Pass("127.0.0.1:0");
  const auto passed = Read();
  ASSERT_TRUE(passed.ok());
  EXPECT_EQ(fcntl(kFirst, F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(std::getenv("LISTEN_FDS"), nullptr);
  EXPECT_EQ(std::getenv("LISTEN_PID"), nullptr);
  EXPECT_EQ(std::getenv("LISTEN_FDNAMES"), nullptr);
}

TEST_F(PassedSocketsTest, ThoseOfAnotherProcessAreLeftAlone) {
  const std::string address = Pass("127.0.0.1:0");
  const auto passed = Read("1", absl::StrCat(getppid()), "");
  ASSERT_TRUE(passed.ok());
  EXPECT_EQ((*passed)->Take(address), std::nullopt);
  EXPECT_EQ(fcntl(kFirst, F_GETFD), 0);
}

TEST_F(PassedSocketsTest, NoVariablesAreNoSockets) {
  const auto passed = PassedSockets::FromEnvironment(kFirst);
  ASSERT_TRUE(passed.ok());
  EXPECT_TRUE((*passed)->Check({{"listen", "127.0.0.1:1"}}).ok());
}

TEST_F(PassedSocketsTest, WrongVariablesAreErrorsThatNameThem) {
  const std::string own = absl::StrCat(getpid());
  for (const char* count : {"", "one", "-1", "100000"}) {
    const auto passed = Read(count, own, "");
    EXPECT_THAT(passed.status(), HasCode(absl::StatusCode::kInvalidArgument)) << count;
    EXPECT_THAT(passed.status().message(), HasSubstr(absl::StrCat("LISTEN_FDS is \"", count, "\"")));
  }
  EXPECT_THAT(Read("1", "me", "").status().message(), HasSubstr("LISTEN_PID is \"me\""));
}

TEST_F(PassedSocketsTest, WhatDoesNotListenIsAnError) {
  Pass("127.0.0.1:0", /*listens=*/false);
  const auto silent = Read("grpc");
  EXPECT_THAT(silent.status(), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(silent.status().message(), AllOf(HasSubstr("descriptor 200, \"grpc\""), HasSubstr("Accept=no")));
  EXPECT_THAT(Read("2", absl::StrCat(getpid()), "").status(), HasCode(absl::StatusCode::kFailedPrecondition));
}

// Listens on passed sockets, one process after the other.
class PassedListenerTest : public PassedSocketsTest {
 protected:
  void TearDown() override {
    RunOn(executor_, [this] { listener_.reset(); });
    PassedSocketsTest::TearDown();
  }

  void Listen(const std::string& address) {
    auto passed = Read();
    ASSERT_TRUE(passed.ok()) << passed.status();
    RunOn(executor_, [&] {
      auto listener = AsioListener::Listen(executor_, address, {.passed = *std::move(passed)},
                                           [this](const AcceptedConnection& connection) {
                                             log_.Add(connection.local ? "local" : "remote");
                                             close(connection.release());
                                           });
      ASSERT_TRUE(listener.ok()) << listener.status();
      EXPECT_EQ((*listener)->address(), address);
      listener_ = *std::move(listener);
    });
  }
  void EndListener() {
    RunOn(executor_, [this] { listener_->Stop(); });
    RunOn(executor_, [this] { listener_.reset(); });
  }

  AsioExecutor executor_;
  EventLog log_;
  std::unique_ptr<AsioListener> listener_;
};

TEST_F(PassedListenerTest, ConnectionsWaitForTheNextListener) {
  const std::string address = Pass("127.0.0.1:0");
  const int held = dup(kFirst);  // as systemd holds it
  Listen(address);
  TestStream first(executor_, {address});
  ASSERT_THAT(log_.Await(1), ElementsAre("local"));
  EndListener();
  TestStream second(executor_, {address});
  EXPECT_THAT(second.log().Await(1), ElementsAre("connected"));
  ASSERT_EQ(dup2(held, kFirst), kFirst);
  close(held);
  Listen(address);
  EXPECT_THAT(log_.Await(2), ElementsAre("local", "local"));
}

TEST_F(PassedListenerTest, KeepsTheFileOfAUnixSocket) {
  const std::string address = Pass(Path("socket"));
  Listen(address);
  EndListener();
  EXPECT_TRUE(std::filesystem::exists(absl::StrCat(folder_, "/socket")));
}

}  // namespace
}  // namespace sluice
