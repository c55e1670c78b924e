#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/link/link_loop.h"
#include "tests/unit/http2/raw_frames.h"
#include "tests/unit/link/link_loop_fixture.h"
#include "tests/unit/link/test_http2_connection.h"
#include "tests/unit/net/silent_listener.h"
#include "tests/unit/net/test_listener.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using testing::CallRecord;
using ::testing::ElementsAre;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::SilentListener;
using ::testing::StartsWith;
using testing::TestHttp2Server;

// Connections that cannot be established, go away, or break.
class LinkLoopConnectionTest : public testing::LinkLoopTest {
 protected:
  void SetUp() override { StartLink(); }
};

TEST_F(LinkLoopConnectionTest, AWorkerThatRefusesToConnectIsUnavailableAndNamed) {
  SilentListener nobody;
  nobody.Close();
  const CallRecord call = AwaitEnd(AskOne(nobody.address()));
  EXPECT_THAT(call.status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(call.status.message()), HasSubstr(nobody.address()));
  EXPECT_THAT(std::string(call.status.message()), HasSubstr("refused"));
  EXPECT_EQ(call.sent, 0);
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(LinkLoopConnectionTest, AWorkerThatExpectsTlsIsSaidTo) {
  const struct {
    std::string sent;
    std::string says;
  } cases[] = {
      // An alert of TLS 1.2 or 1.3, as sent by OpenSSL and Go. gRPC's servers send nothing.
      {std::string("\x15\x03\x03\x00\x02\x02\x46", 7), " speaks TLS, and this client does not"},
      {"", " ended the connection before HTTP/2 began; it may expect TLS"},
  };
  for (const auto& [sent, says] : cases) {
    testing::TestListener listener("127.0.0.1:0", [sent = sent](int fd) {
      testing::ReceiveAtLeast(fd, 1);
      testing::SendAll(fd, sent);
    });
    const std::string& address = listener.address().text;
    const CallRecord call = AwaitEnd(AskOne(address));
    EXPECT_THAT(call.status, HasCode(absl::StatusCode::kUnavailable));
    EXPECT_THAT(std::string(call.status.message()), StartsWith(address + says));
  }
}

TEST_F(LinkLoopConnectionTest, AWorkerThatAppearsIsConnectedAfterABackOff) {
  int port = 0;
  {
    const TestHttp2Server gone([](auto&) {});
    port = gone.port();
  }
  const std::string target = absl::StrCat("127.0.0.1:", port);
  EXPECT_THAT(AwaitEnd(AskOne(target)).status, HasCode(absl::StatusCode::kUnavailable));
  // While the worker is unreachable, calls end at once, and not at the next attempt.
  EXPECT_THAT(AwaitEnd(AskOne(target)).status, HasCode(absl::StatusCode::kUnavailable));
  TestHttp2Server server([](auto& call) { call.Answer("here"); }, {.port = port});
  ASSERT_TRUE(server.Await([](const auto& counts) { return counts.connections == 1; }));
  Connect(target);
  const CallRecord call = AwaitEnd(AskOne(target));
  EXPECT_TRUE(call.status.ok()) << call.status;
  EXPECT_THAT(call.messages, ElementsAre("here"));
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(LinkLoopConnectionTest, AfterAGoAwayCallsEndOnTheOldConnectionOrAreSentAgain) {
  TestHttp2Server server([](auto&) {});
  Connect(server.address());
  const std::vector<size_t> tags = Ask(std::vector<std::string>(4, server.address()), {.response_bytes = 100});
  ASSERT_TRUE(server.AwaitRequests(4));
  // The server has processed only the first two.
  server.Run([&] { server.calls()[0]->connection().SendFrames(raw::GoAway(server.calls()[1]->stream())); });
  ASSERT_TRUE(server.AwaitRequests(6)) << "the others come again";
  EXPECT_EQ(server.counts().connections, 2);
  server.Run([&] {
    for (const size_t i : {0, 1, 4, 5}) server.calls()[i]->Answer(i < 2 ? std::to_string(i) : "again");
  });
  EXPECT_THAT(AwaitEnd(tags[0]).messages, ElementsAre("0"));
  EXPECT_THAT(AwaitEnd(tags[1]).messages, ElementsAre("1"));
  EXPECT_THAT(AwaitEnd(tags[2]).messages, ElementsAre("again"));
  EXPECT_THAT(AwaitEnd(tags[3]).messages, ElementsAre("again"));
  for (const size_t tag : tags) EXPECT_TRUE(AwaitEnd(tag).status.ok()) << AwaitEnd(tag).status;
  EXPECT_TRUE(AwaitIdle());
  EXPECT_TRUE(server.Await([](const auto& counts) { return counts.open_connections == 1; }))
      << "the old one is closed after its last stream";
}

TEST_F(LinkLoopConnectionTest, ANewCallAfterAGoAwayTakesANewConnection) {
  TestHttp2Server server([](auto& call) { call.Answer("x"); });
  EXPECT_TRUE(AwaitEnd(AskOne(server.address())).status.ok());
  server.Run([&] { server.calls()[0]->connection().session().GoAway(Http2Error::kNoError); });
  ASSERT_TRUE(server.Await([](const auto& counts) { return counts.open_connections == 1 && counts.connections == 2; }))
      << "for whoever asks next";
  EXPECT_TRUE(AwaitEnd(AskOne(server.address())).status.ok());
  EXPECT_EQ(server.counts().connections, 2);
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(LinkLoopConnectionTest, AConnectionThatBreaksInAnAnswerMakesItUnavailable) {
  TestHttp2Server server([](auto& call) {
    call.SendHead();
    call.SendData(FrameMessage(std::string(500, 'x')).substr(0, 200));
  });
  const size_t tag = AskOne(server.address());
  AwaitReady(tag);
  const size_t other = AskOne(server.address());
  AwaitReady(other);
  server.Run([&] { server.calls()[0]->connection().Break(); });
  for (const size_t broken : {tag, other}) {
    const CallRecord call = AwaitEnd(broken);
    EXPECT_THAT(call.status, HasCode(absl::StatusCode::kUnavailable));
    EXPECT_TRUE(call.messages.empty());
  }
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(LinkLoopConnectionTest, ACallAfterABrokenConnectionWaitsForTheNextOne) {
  TestHttp2Server server([](auto& call) { call.Answer("x"); });
  EXPECT_TRUE(AwaitEnd(AskOne(server.address())).status.ok());
  executor_.Await([] {});
  server.Run([&] { server.calls()[0]->connection().Break(); });
  ASSERT_TRUE(server.Await([](const auto& counts) { return counts.connections == 2; }));
  Connect(server.address());
  EXPECT_TRUE(AwaitEnd(AskOne(server.address())).status.ok());
}

// The end of a connection is written at once, while it is still queued for writing.
TEST_F(LinkLoopConnectionTest, AWorkerMayGoInTheTurnInWhichItHasSomethingToWrite) {
  TestHttp2Server server([](auto& call) { call.Answer("x"); });
  EXPECT_TRUE(AwaitEnd(AskOne(server.address())).status.ok());
  executor_.Await([&] {
    WorkerOf(server.address())->Sendable(0)->FlushLater();
    workers_.clear();
  });
  EXPECT_TRUE(AwaitIdle());
}

TEST_F(LinkLoopConnectionTest, ALinkMayEndWhileCallsAreOutAndWait) {
  SetMaxConnections(1);
  TestHttp2Server server([](auto&) {}, {.max_concurrent_streams = 2});
  Connect(server.address());
  const std::vector<size_t> tags = Ask(std::vector<std::string>(4, server.address()));
  ASSERT_TRUE(server.AwaitRequests(2));
  SilentListener silent;
  const size_t connecting = AskOne(silent.address());
  executor_.Await([&] {
    workers_.clear();
    loop_.reset();
  });
  for (const size_t tag : tags) EXPECT_THAT(AwaitEnd(tag).status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(AwaitEnd(connecting).status, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(server.Await([](const auto& counts) { return counts.open_connections == 0; }));
}

// The worker accepts connections and sends nothing. A call must not wait beyond its deadline.
TEST_F(LinkLoopConnectionTest, ACallToASilentWorkerEndsAtItsDeadline) {
  SilentListener silent;
  const CallRecord call = AwaitEnd(AskOne(silent.address(), {.timeout = milliseconds(100)}));
  EXPECT_THAT(call.status, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(call.sent, 0);
}

}  // namespace
}  // namespace sluice
