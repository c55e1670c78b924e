#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/asio_executor.h"
#include "lib/tls/tls_context.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/net/test_stream.h"
#include "tests/unit/tls/test_certificates.h"
#include "tests/unit/tls/tls_end.h"
#include "tests/watched.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::EventLog;
using testing::ReceiveAll;
using testing::ReceiveAtLeast;
using testing::RunOn;
using testing::SendAll;
using ::testing::SizeIs;
using testing::TestCertificates;
using testing::TestListener;
using testing::TestStream;
using testing::TlsServerEnd;

class AsioStreamTlsTest : public ::testing::Test {
 protected:
  std::shared_ptr<const TlsContext> Context(const TlsOptions& options) {
    auto context = TlsContext::Create(options);
    EXPECT_TRUE(context.ok()) << context.status();
    return *context;
  }

  // Serves until the client ends and returns the client's bytes. Sends them back if `echoes`.
  static std::string Serve(int fd, TlsServerEnd& end, bool echoes) {
    size_t echoed = 0;
    while (true) {
      const std::string bytes = ReceiveAtLeast(fd, 1);
      std::string output;
      if (bytes.empty() || !end.Receive(bytes, output) || end.ended()) return end.received();
      if (echoes && end.received().size() > echoed) output += end.Send(end.received().substr(echoed));
      echoed = end.received().size();
      SendAll(fd, output);
    }
  }
  // Returns once the handshake is complete and the first bytes have arrived.
  static void AwaitFirstBytes(int fd, TlsServerEnd& end) {
    while (end.received().empty()) {
      const std::string bytes = ReceiveAtLeast(fd, 1);
      std::string output;
      if (bytes.empty() || !end.Receive(bytes, output)) return;
      SendAll(fd, output);
    }
  }

  TestCertificates certificates_;
  const TlsServerEnd::Options server_{.files = certificates_.Make("server")};
  AsioExecutor executor_;
};

// Counts events, and begins TLS at the test's command.
class LaterTls final : public StreamSocketEvents {
 public:
  void OnTcpConnected() override { log.Add("tcp connected"); }
  void OnConnected() override { log.Add("connected"); }
  void OnBytes(absl::string_view) override {}
  void OnDisconnected(absl::Status why) override { log.Add(absl::StrCat("ended: ", why.ToString())); }

  EventLog log;
};

TEST_F(AsioStreamTlsTest, BeginsTheHandshakeWhenItIsTold) {
  TestListener listener("127.0.0.1:0", [&](int fd) {
    TlsServerEnd end(server_);
    Serve(fd, end, /*echoes=*/true);
  });
  LaterTls events;
  std::unique_ptr<StreamSocket> socket;
  RunOn(executor_, [&] {
    socket = executor_.Connect(
        listener.address(),
        {.tls = Context(certificates_.ClientOptions()), .server_name = "localhost", .tls_later = true}, events);
  });
  ASSERT_THAT(events.log.Await(1), ElementsAre("tcp connected"));
  RunOn(executor_, [&] { socket->StartTls(); });
  EXPECT_THAT(events.log.Await(2), ElementsAre("tcp connected", "connected"));
  RunOn(executor_, [&] { socket.reset(); });
}

TEST_F(AsioStreamTlsTest, CarriesBytesBothWays) {
  TestListener listener("127.0.0.1:0", [&](int fd) {
    TlsServerEnd end(server_);
    Serve(fd, end, /*echoes=*/true);
  });
  TestStream stream(executor_, listener.address(), Context(certificates_.ClientOptions()));
  ASSERT_THAT(stream.log().Await(1), ElementsAre("connected"));
  std::string bytes(3 << 20, 'x');
  for (size_t i = 0; i < bytes.size(); i += 1000) bytes[i] = static_cast<char>(i / 1000);
  stream.Write(bytes);
  EXPECT_TRUE(stream.AwaitBytes(bytes.size()) == bytes);
  RunOn(executor_, [&] { EXPECT_TRUE(stream.socket()->Tcp().has_value()); });
}

TEST_F(AsioStreamTlsTest, WorksOverAUnixSocket) {
  TestListener listener("unix-abstract:", [&](int fd) {
    TlsServerEnd end(server_);
    Serve(fd, end, /*echoes=*/true);
  });
  TestStream stream(executor_, listener.address(), Context(certificates_.ClientOptions()));
  ASSERT_THAT(stream.log().Await(1), ElementsAre("connected"));
  stream.Write("question");
  EXPECT_EQ(stream.AwaitBytes(8), "question");
}

TEST_F(AsioStreamTlsTest, IsNotConnectedWhereTheCertificateIsForAnother) {
  TlsServerEnd::Options server{.files = certificates_.Make("other", {.dns_names = {"w-1"}, .ip_addresses = {}})};
  EventLog served;
  TestListener listener("127.0.0.1:0", [&](int fd) {
    TlsServerEnd end(server);
    served.Add(Serve(fd, end, /*echoes=*/false));
  });
  TestStream stream(executor_, listener.address(), Context(certificates_.ClientOptions()));
  EXPECT_THAT(stream.log().Await(1), ElementsAre(absl::StrCat("ended: UNAVAILABLE: the certificate of ",
                                                              listener.address().text, " is for w-1, not localhost")));
  EXPECT_THAT(served.Await(1), ElementsAre(""));
}

TEST_F(AsioStreamTlsTest, SaysThatAServerDoesNotSpeakTls) {
  TestListener listener("127.0.0.1:0", [](int fd) {
    SendAll(fd, std::string("\0\0\x12\x04\0\0\0\0\0", 9));  // as HTTP/2 begins
    ReceiveAll(fd);
  });
  TestStream stream(executor_, listener.address(), Context(certificates_.ClientOptions()));
  EXPECT_THAT(stream.log().Await(1), ElementsAre(absl::StrCat("ended: UNAVAILABLE: ", listener.address().text,
                                                              ": the other side does not speak TLS")));
}

TEST_F(AsioStreamTlsTest, SaysThatAServerEndsTheHandshake) {
  TestListener listener("127.0.0.1:0", [](int fd) {
    ReceiveAtLeast(fd, 1);
    shutdown(fd, SHUT_WR);
    ReceiveAll(fd);
  });
  TestStream stream(executor_, listener.address(), Context(certificates_.ClientOptions()));
  EXPECT_THAT(stream.log().Await(1),
              ElementsAre(absl::StrCat("ended: UNAVAILABLE: ", listener.address().text,
                                       " ended the connection in the TLS handshake; it may not speak TLS")));
}

TEST_F(AsioStreamTlsTest, AnEndInGoodOrderIsOkAndOneWithoutCloseNotifyIsNot) {
  for (const bool in_good_order : {true, false}) {
    TestListener listener("127.0.0.1:0", [&](int fd) {
      TlsServerEnd end(server_);
      AwaitFirstBytes(fd, end);
      SendAll(fd, end.Send("last words"));
      if (in_good_order) SendAll(fd, end.SendEnd());
      shutdown(fd, SHUT_WR);
      ReceiveAll(fd);
    });
    TestStream stream(executor_, listener.address(), Context(certificates_.ClientOptions()));
    ASSERT_THAT(stream.log().Await(1), ElementsAre("connected"));
    stream.Write("x");
    const std::string cut =
        absl::StrCat("ended: UNAVAILABLE: ", listener.address().text, " ended the connection without TLS close_notify");
    EXPECT_THAT(stream.log().Await(2), ElementsAre("connected", in_good_order ? "ended: OK" : cut));
    EXPECT_EQ(stream.received(), "last words");
  }
}

TEST_F(AsioStreamTlsTest, DroppingItSaysThatNothingFollows) {
  EventLog served;
  TestListener listener("127.0.0.1:0", [&](int fd) {
    TlsServerEnd end(server_);
    const std::string received = Serve(fd, end, /*echoes=*/false);
    served.Add(absl::StrCat(received, end.ended() ? ", then close_notify" : ", then cut"));
  });
  {
    TestStream stream(executor_, listener.address(), Context(certificates_.ClientOptions()));
    ASSERT_THAT(stream.log().Await(1), ElementsAre("connected"));
    stream.Write("goodbye");
  }
  EXPECT_THAT(served.Await(1), ElementsAre("goodbye, then close_notify"));
}

TEST_F(AsioStreamTlsTest, ARefusedClientCertificateEndsTheConnectionWithTheReason) {
  TlsServerEnd::Options server = server_;
  server.client_ca_file = certificates_.ca_file();
  TestListener listener("127.0.0.1:0", [&](int fd) {
    TlsServerEnd end(server);
    std::string output;
    while (true) {
      const std::string bytes = ReceiveAtLeast(fd, 1);
      if (bytes.empty() || !end.Receive(bytes, output)) break;
      SendAll(fd, output);
      output.clear();
    }
    SendAll(fd, output);
    shutdown(fd, SHUT_WR);
    ReceiveAll(fd);
  });
  TestStream stream(executor_, listener.address(), Context(certificates_.ClientOptions()));
  // With TLS 1.3 the client's side of the handshake is complete before the server checks its certificate.
  EXPECT_THAT(stream.log().Await(2),
              ElementsAre("connected", absl::StrCat("ended: UNAVAILABLE: ", listener.address().text,
                                                    " asks for a certificate of this client, which has none")));
}

// Workers that all reconnect at once must not delay connected workers.
TEST_F(AsioStreamTlsTest, CompletesOneHandshakeATurn) {
  constexpr size_t kWorkers = 20;
  testing::Watched<std::vector<int>> accepted;
  TestListener listener("127.0.0.1:0",
                        [&](int fd) { accepted.Change([fd](std::vector<int>& fds) { fds.push_back(dup(fd)); }); });
  size_t connected = 0;
  std::vector<std::unique_ptr<TestStream>> streams;
  const auto context = Context(certificates_.ClientOptions());
  for (size_t i = 0; i < kWorkers; ++i) {
    streams.push_back(std::make_unique<TestStream>(
        executor_, listener.address(), context, testing::TestStreamHooks{.on_connected = [&](auto&) { ++connected; }}));
  }
  ASSERT_TRUE(accepted.Await([](const std::vector<int>& fds) { return fds.size() == kWorkers; }));
  const std::vector<int> sockets = accepted.Get();
  std::vector<std::string> answers;
  for (const int fd : sockets) {
    TlsServerEnd end(server_);
    ASSERT_TRUE(end.Receive(ReceiveAtLeast(fd, 1), answers.emplace_back()));
  }
  testing::Watched<std::vector<size_t>> connected_by_turn;  // connected streams at the end of each turn
  RunOn(executor_, [&] {
    executor_.SetEndOfTurn(
        [&] { connected_by_turn.Change([&](std::vector<size_t>& turns) { turns.push_back(connected); }); });
    for (size_t i = 0; i < kWorkers; ++i) SendAll(sockets[i], answers[i]);
  });
  EXPECT_TRUE(connected_by_turn.Await(
      [](const std::vector<size_t>& turns) { return !turns.empty() && turns.back() == kWorkers; }));
  size_t before = 0;
  for (const size_t count : connected_by_turn.Get()) EXPECT_LE(count, std::exchange(before, count) + 1);
  RunOn(executor_, [&] { executor_.SetEndOfTurn(nullptr); });
  for (const int fd : sockets) close(fd);
}

TEST_F(AsioStreamTlsTest, MayBeDroppedByItsEvents) {
  TestListener listener("127.0.0.1:0", [&](int fd) {
    TlsServerEnd end(server_);
    Serve(fd, end, /*echoes=*/true);
  });
  const auto drop = [](TestStream& stream) { stream.socket().reset(); };
  const auto context = Context(certificates_.ClientOptions());
  {
    TestStream stream(executor_, listener.address(), context, {.on_connected = drop});
    EXPECT_THAT(stream.log().Await(1), ElementsAre("connected"));
  }
  {
    TestStream stream(executor_, listener.address(), context, {.on_bytes = drop});
    stream.log().Await(1);
    stream.Write("x");
    EXPECT_EQ(stream.AwaitBytes(1), "x");
    RunOn(executor_, [] {});
    EXPECT_THAT(stream.log().events(), SizeIs(1));
  }
}

}  // namespace
}  // namespace sluice
