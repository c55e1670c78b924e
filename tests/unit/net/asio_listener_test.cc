#include "lib/net/asio_listener.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/asio_executor.h"
#include "tests/has_code.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/test_stream.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::EventLog;
using testing::HasCode;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::RunOn;
using ::testing::SizeIs;
using testing::TestStream;

// A connection that a listener accepts: it echoes its input, and logs it.
class Accepted final : public StreamSocketEvents {
 public:
  Accepted(EventLog& log, const AcceptedConnection& connection) : log_(log), socket_(connection.start(*this)) {}

  StreamSocket& socket() { return *socket_; }
  void OnConnected() override { log_.Add("connected"); }
  void OnBytes(absl::string_view bytes) override {
    log_.Add(std::string(bytes));
    socket_->Write(std::string(bytes));
  }
  void OnDrained() override { log_.Add("drained"); }
  void OnDisconnected(absl::Status why) override { log_.Add(absl::StrCat("ended: ", why.ToString())); }

 private:
  EventLog& log_;
  std::unique_ptr<StreamSocket> socket_;
};

class AsioListenerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = std::filesystem::temp_directory_path() / "sluice-listener-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override {
    RunOn(executor_, [this] {
      listeners_.clear();
      accepted_.clear();
    });
    std::filesystem::remove_all(folder_);
  }

  absl::StatusOr<std::string> Listen(const std::string& address, uint32_t mode = 0600) {
    absl::StatusOr<std::string> bound(std::string(""));
    RunOn(executor_, [&] {
      auto listener =
          AsioListener::Listen(executor_, address, {.unix_mode = mode}, [this](const AcceptedConnection& connection) {
            log_.Add(absl::StrCat(connection.local ? "local" : "remote", " user ",
                                  connection.client.has_value() ? absl::StrCat(*connection.client) : "unknown"));
            if (pause_.count() > 0) listeners_.back()->Pause(pause_);
            if (refuse_) return;
            accepted_.push_back(std::make_unique<Accepted>(log_, connection));
          });
      if (!listener.ok()) {
        bound = listener.status();
        return;
      }
      bound = (*listener)->address();
      listeners_.push_back(*std::move(listener));
    });
    return bound;
  }
  void ExpectServes(const std::string& address) {
    TestStream client(executor_, {address});
    ASSERT_THAT(client.log().Await(1), ElementsAre("connected"));
    client.Write("question");
    EXPECT_EQ(client.AwaitBytes(8), "question");
  }
  std::string Path(const std::string& name) const { return absl::StrCat(folder_, "/", name); }

  std::string folder_;
  AsioExecutor executor_;
  EventLog log_;
  bool refuse_ = false;
  std::chrono::milliseconds pause_{0};  // after each connection
  std::vector<std::unique_ptr<AsioListener>> listeners_;
  std::vector<std::unique_ptr<Accepted>> accepted_;
};

TEST_F(AsioListenerTest, FindsAFreePortOfTcp) {
  for (const char* address : {"127.0.0.1:0", "[::1]:0", "localhost:0", ":0", "*:0"}) {
    const auto bound = Listen(address);
    ASSERT_TRUE(bound.ok()) << bound.status();
    EXPECT_THAT(*bound, MatchesRegex("(127\\.0\\.0\\.1|\\[::1?\\]):[1-9][0-9]*"));
    ExpectServes(absl::StartsWith(*bound, "[::]") ? absl::StrCat("127.0.0.1", bound->substr(4)) : *bound);
    EXPECT_EQ(log_.events().front(), "local user unknown");
  }
}

TEST_F(AsioListenerTest, TellsThePeerOfTheListener) {
  const auto bound = Listen("127.0.0.1:0");
  {
    TestStream client(executor_, {*bound});
    ASSERT_THAT(client.log().Await(1), ElementsAre("connected"));
    client.Write("bye");
    client.AwaitBytes(3);
  }
  EXPECT_THAT(log_.Await(4), ElementsAre("local user unknown", "connected", "bye", "ended: OK"));
}

TEST_F(AsioListenerTest, AcceptsAgainAfterAPause) {
  pause_ = std::chrono::milliseconds(1);
  const auto bound = Listen("127.0.0.1:0");
  ASSERT_TRUE(bound.ok());
  for (int i = 0; i < 3; ++i) ExpectServes(*bound);
}

TEST_F(AsioListenerTest, AcceptsNothingDuringAPause) {
  pause_ = std::chrono::hours(1);
  const auto bound = Listen("127.0.0.1:0");
  ASSERT_TRUE(bound.ok());
  ExpectServes(*bound);
  TestStream waiting(executor_, {*bound});
  ASSERT_THAT(waiting.log().Await(1), ElementsAre("connected")) << "by the kernel";
  RunOn(executor_, [] {});
  EXPECT_THAT(log_.events(), ::testing::Contains("local user unknown").Times(1));
}

TEST_F(AsioListenerTest, APortThatIsTakenIsUnavailable) {
  const auto bound = Listen("127.0.0.1:0");
  ASSERT_TRUE(bound.ok());
  const auto again = Listen(*bound);
  EXPECT_THAT(again.status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(again.status().message()), HasSubstr(*bound));
  EXPECT_THAT(Listen("192.0.2.1:0").status(), HasCode(absl::StatusCode::kUnavailable)) << "not one of this host";
}

TEST_F(AsioListenerTest, APortIsFreeOnceTheListenerIsGone) {
  const auto bound = Listen("127.0.0.1:0");
  ExpectServes(*bound);
  RunOn(executor_, [this] { listeners_.clear(); });
  EXPECT_TRUE(Listen(*bound).ok());
}

TEST_F(AsioListenerTest, WhatIsNoAddressIsSaidSo) {
  for (const std::string& address :
       {std::string("10.0.0.1"), std::string("name.svc:80"), std::string("127.0.0.1:99999"), std::string("unix:"),
        "unix:/" + std::string(200, 'x'), std::string("unix-abstract:")}) {
    EXPECT_THAT(Listen(address).status(), HasCode(absl::StatusCode::kInvalidArgument)) << address;
  }
  EXPECT_THAT(Listen(absl::StrCat("unix:", Path("no/such/folder"))).status(), HasCode(absl::StatusCode::kUnavailable));
}

TEST_F(AsioListenerTest, TheSocketOfAPathHasItsModeAndGoesWithTheListener) {
  for (const uint32_t mode : {0600U, 0660U, 0666U}) {
    const std::string path = Path("socket");
    const auto bound = Listen(absl::StrCat("unix:", path), mode);
    ASSERT_TRUE(bound.ok()) << bound.status();
    EXPECT_EQ(*bound, absl::StrCat("unix:", path));
    struct stat status {};
    ASSERT_EQ(lstat(path.c_str(), &status), 0);
    EXPECT_TRUE(S_ISSOCK(status.st_mode));
    EXPECT_EQ(status.st_mode & 0777, mode);
    ExpectServes(*bound);
    RunOn(executor_, [this] { listeners_.clear(); });
    EXPECT_NE(lstat(path.c_str(), &status), 0);
  }
}

TEST_F(AsioListenerTest, TheKernelSaysWhoConnectsToAUnixSocket) {
  const auto bound = Listen(absl::StrCat("unix:", Path("socket")));
  ExpectServes(*bound);
  EXPECT_EQ(log_.events().front(), absl::StrCat("local user ", geteuid()));
}

TEST_F(AsioListenerTest, ASocketThatWasLeftBehindIsReplaced) {
  const std::string path = Path("socket");
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  close(fd);
  ASSERT_TRUE(std::filesystem::exists(path));
  const auto bound = Listen(absl::StrCat("unix:", path));
  ASSERT_TRUE(bound.ok()) << bound.status();
  ExpectServes(*bound);
}

// Another process has removed the socket, and listens there itself.
TEST_F(AsioListenerTest, TheSocketOfAnotherProcessStays) {
  const std::string path = Path("socket");
  ASSERT_TRUE(Listen(absl::StrCat("unix:", path)).ok());
  ASSERT_TRUE(std::filesystem::remove(path));
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  RunOn(executor_, [this] { listeners_.clear(); });
  EXPECT_TRUE(std::filesystem::exists(path));
  close(fd);
}

// The umask belongs to all threads, which may make files at the same time.
TEST_F(AsioListenerTest, TheModeOfASocketDoesNotDependOnTheUmask) {
  for (const mode_t mask : {0U, 0777U}) {
    const mode_t before = umask(mask);
    ASSERT_TRUE(Listen(absl::StrCat("unix:", Path("socket")), 0640).ok());
    EXPECT_EQ(umask(before), mask) << "it stays as it was";
    struct stat status {};
    ASSERT_EQ(lstat(Path("socket").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0640U);
    RunOn(executor_, [this] { listeners_.clear(); });
  }
}

TEST_F(AsioListenerTest, ASocketThatIsListenedOnStays) {
  const std::string address = absl::StrCat("unix:", Path("socket"));
  ASSERT_TRUE(Listen(address).ok());
  EXPECT_THAT(Listen(address).status(), HasCode(absl::StatusCode::kUnavailable));
  ExpectServes(address);
}

TEST_F(AsioListenerTest, AFileThatIsNoSocketStays) {
  const std::string path = Path("notes");
  std::ofstream(path) << "not to be lost";
  EXPECT_THAT(Listen(absl::StrCat("unix:", path)).status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(std::filesystem::is_regular_file(path));
}

TEST_F(AsioListenerTest, AnAbstractNameHasNoFile) {
  const std::string address = absl::StrCat("unix-abstract:sluice-listener-test-", getpid());
  const auto bound = Listen(address);
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_EQ(*bound, address);
  ExpectServes(address);
  EXPECT_EQ(log_.events().front(), absl::StrCat("local user ", geteuid()));
  EXPECT_THAT(Listen(address).status(), HasCode(absl::StatusCode::kUnavailable));
}

TEST_F(AsioListenerTest, AConnectionThatIsNotStartedIsClosed) {
  refuse_ = true;
  const auto bound = Listen("127.0.0.1:0");
  TestStream client(executor_, {*bound});
  EXPECT_THAT(client.log().Await(2), ElementsAre("connected", "ended: OK"));
}

TEST_F(AsioListenerTest, TakesManyConnections) {
  const auto bound = Listen(absl::StrCat("unix:", Path("socket")));
  std::vector<std::unique_ptr<TestStream>> clients;
  for (int i = 0; i < 50; ++i) clients.push_back(std::make_unique<TestStream>(executor_, WorkerAddress{*bound}));
  for (const auto& client : clients) client->log().Await(1);
  for (const auto& client : clients) client->Write("x");
  for (const auto& client : clients) EXPECT_THAT(client->AwaitBytes(1), "x");
}

// --- Streams whose owner or whose peer does not read.

TEST_F(AsioListenerTest, AStreamThatIsNotReadKeepsItsBytesInTheKernel) {
  const auto bound = Listen(absl::StrCat("unix:", Path("socket")));
  TestStream client(executor_, {*bound});
  ASSERT_THAT(client.log().Await(1), ElementsAre("connected"));
  client.Write("1");
  ASSERT_EQ(client.AwaitBytes(1), "1");
  RunOn(executor_, [&] { accepted_.front()->socket().SetReading(false); });
  client.Write("2");
  RunOn(executor_, [] {});
  RunOn(executor_, [] {});
  EXPECT_EQ(client.received(), "1");
  // Write more than the sockets hold: unread bytes then stop the writer.
  client.Write(std::string(8 << 20, 'x'));
  RunOn(executor_, [&] { EXPECT_GT(client.socket()->unsent_bytes(), 1U << 20); });
  RunOn(executor_, [&] { accepted_.front()->socket().SetReading(true); });
  EXPECT_THAT(client.AwaitBytes(2 + (8 << 20)), SizeIs(2 + (8 << 20)));
}

TEST_F(AsioListenerTest, ReadingMayStopAndGoOnWithinAnEvent) {
  const auto bound = Listen("127.0.0.1:0");
  bool stopped = false;
  TestStream client(executor_, {*bound}, nullptr, {.on_bytes = [&](TestStream& stream) {
                      stream.socket()->SetReading(false);
                      stopped = !stopped;
                      if (!stopped) stream.socket()->SetReading(true);
                    }});
  ASSERT_THAT(client.log().Await(1), ElementsAre("connected"));
  client.Write("a");
  EXPECT_EQ(client.AwaitBytes(1), "a");
  client.Write("b");
  log_.Await(4);
  RunOn(executor_, [] {});
  EXPECT_EQ(client.received(), "a");
  RunOn(executor_, [&] {
    client.socket()->SetReading(true);
    client.socket()->SetReading(true);
  });
  EXPECT_EQ(client.AwaitBytes(2), "ab");
  client.Write("c");
  EXPECT_EQ(client.AwaitBytes(3), "abc");
}

TEST_F(AsioListenerTest, OnDrainedComesOnceAllThatWasKeptHasLeft) {
  const auto bound = Listen(absl::StrCat("unix:", Path("socket")));
  TestStream client(executor_, {*bound});
  ASSERT_THAT(client.log().Await(1), ElementsAre("connected"));
  ASSERT_THAT(log_.Await(2), SizeIs(2));
  RunOn(executor_, [&] { client.socket()->SetReading(false); });
  RunOn(executor_, [&] {
    StreamSocket& socket = accepted_.front()->socket();
    socket.Write("a little");
    EXPECT_EQ(socket.unsent_bytes(), 0U) << "the kernel takes it at once";
    socket.Write(std::string(4 << 20, 'x'));
    EXPECT_GT(socket.unsent_bytes(), 1U << 20);
  });
  RunOn(executor_, [] {});
  EXPECT_THAT(log_.events(), SizeIs(2)) << "nobody reads";
  RunOn(executor_, [&] { client.socket()->SetReading(true); });
  EXPECT_THAT(client.AwaitBytes(8 + (4 << 20)), SizeIs(8 + (4 << 20)));
  EXPECT_THAT(log_.Await(3), ElementsAre(::testing::_, "connected", "drained"));
  RunOn(executor_, [&] { EXPECT_EQ(accepted_.front()->socket().unsent_bytes(), 0U); });
}

TEST_F(AsioListenerTest, APeerThatIsNotReadAndGoesIsNoticedByAWrite) {
  const auto bound = Listen(absl::StrCat("unix:", Path("socket")));
  auto client = std::make_unique<TestStream>(executor_, WorkerAddress{*bound});
  ASSERT_THAT(client->log().Await(1), ElementsAre("connected"));
  ASSERT_THAT(log_.Await(2), SizeIs(2));
  RunOn(executor_, [&] {
    client->socket()->SetReading(false);
    accepted_.front()->socket().SetReading(false);
    accepted_.front()->socket().Write(std::string(4 << 20, 'x'));
  });
  client.reset();
  EXPECT_TRUE(testing::Eventually([&] { return absl::StartsWith(log_.events().back(), "ended: "); }));
}

TEST_F(AsioListenerTest, OneOnAllAddressesHasEachOfTheHosts) {
  const absl::StatusOr<std::string> bound = Listen("0.0.0.0:0");
  ASSERT_TRUE(bound.ok()) << bound.status();
  const std::string port = bound->substr(bound->rfind(':'));
  std::vector<std::string> all;
  RunOn(executor_, [&] { all = listeners_.back()->AllAddresses(); });
  EXPECT_THAT(all, ::testing::IsSupersetOf({"0.0.0.0" + port, "127.0.0.1" + port}));
  const absl::StatusOr<std::string> one = Listen("127.0.0.1:0");
  RunOn(executor_, [&] { all = listeners_.back()->AllAddresses(); });
  EXPECT_THAT(all, ElementsAre(*one));
}

}  // namespace
}  // namespace sluice
