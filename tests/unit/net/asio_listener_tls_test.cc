// Listeners with TLS, on real sockets.
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/net/asio_executor.h"
#include "lib/net/asio_listener.h"
#include "lib/tls/tls_context.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/net/test_stream.h"
#include "tests/unit/tls/test_certificates.h"
#include "tests/unit/tls/tls_end.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using testing::EventLog;
using ::testing::MatchesRegex;
using testing::ReceiveAtLeast;
using testing::RunOn;
using testing::SendAll;
using testing::TestCertificates;
using testing::TestStream;
using testing::TlsClientEnd;

// Echoes its input, and logs it.
class AcceptedTls final : public StreamSocketEvents {
 public:
  AcceptedTls(EventLog& log, const AcceptedConnection& connection) : log_(log), socket_(connection.start(*this)) {}

  StreamSocket& socket() { return *socket_; }
  void OnConnected() override { log_.Add("connected"); }
  void OnBytes(absl::string_view bytes) override { socket_->Write(std::string(bytes)); }
  void OnDisconnected(absl::Status why) override { log_.Add(absl::StrCat("ended: ", why.ToString())); }

 private:
  EventLog& log_;
  std::unique_ptr<StreamSocket> socket_;
};

class AsioListenerTlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto files = certificates_.Make("listener");
    const auto context = TlsContext::CreateForListener({.files = {.certificate_file = files.certificate_file,
                                                                  .key_file = files.key_file,
                                                                  .client_ca_file = certificates_.ca_file()},
                                                        .client_names = {}});
    ASSERT_TRUE(context.ok()) << context.status();
    tls_ = *context;
    Listen("127.0.0.1:0");
  }
  void Listen(const std::string& address) {
    RunOn(executor_, [&] {
      listener_.reset();
      auto listener =
          AsioListener::Listen(executor_, address, {.tls = tls_}, [this](const AcceptedConnection& connection) {
            peers_.Add(connection.peer);
            accepted_.push_back(std::make_unique<AcceptedTls>(log_, connection));
          });
      ASSERT_TRUE(listener.ok()) << listener.status();
      listener_ = *std::move(listener);
    });
  }
  void TearDown() override {
    RunOn(executor_, [this] {
      listener_.reset();
      accepted_.clear();
    });
  }
  std::shared_ptr<const TlsContext> ClientTls(bool certificate = true) {
    const auto context = TlsContext::Create(certificate ? certificates_.ClientOptions(certificates_.Make("client"))
                                                        : certificates_.ClientOptions());
    EXPECT_TRUE(context.ok()) << context.status();
    return *context;
  }
  WorkerAddress address() const { return {listener_->address()}; }
  // Listens on a Unix socket, where a client can connect and send before it is accepted.
  void ListenOnUnixSocket() {
    name_ = absl::StrCat("sluice-listener-tls-test-", getpid());
    Listen("unix-abstract:" + name_);
  }
  // Connects to the Unix socket. The caller closes the socket.
  int ConnectToUnixSocket() const {
    sockaddr_un place{.sun_family = AF_UNIX, .sun_path = {}};
    name_.copy(place.sun_path + 1, sizeof(place.sun_path) - 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&place),
                      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size())),
              0);
    return fd;
  }
  TlsClientEnd NewClient() {
    return TlsClientEnd({.ca_file = certificates_.ca_file(), .files = certificates_.Make("client")});
  }

  std::string name_;

  TestCertificates certificates_;
  std::shared_ptr<const TlsContext> tls_;
  AsioExecutor executor_;
  EventLog log_;
  EventLog peers_;
  std::unique_ptr<AsioListener> listener_;
  std::vector<std::unique_ptr<AcceptedTls>> accepted_;
};

TEST_F(AsioListenerTlsTest, CarriesBytesBothWaysAndSaysItsEnd) {
  {
    TestStream client(executor_, address(), ClientTls());
    ASSERT_THAT(client.log().Await(1), ElementsAre("connected"));
    EXPECT_THAT(log_.Await(1), ElementsAre("connected"));
    std::string bytes(3 << 20, 'x');
    for (size_t i = 0; i < bytes.size(); i += 1000) bytes[i] = static_cast<char>(i / 1000);
    client.Write(bytes);
    EXPECT_TRUE(client.AwaitBytes(bytes.size()) == bytes);
    RunOn(executor_, [&] { EXPECT_TRUE(accepted_.front()->socket().Tcp().has_value()); });
  }
  EXPECT_THAT(log_.Await(2), ElementsAre("connected", "ended: OK"));
}

TEST_F(AsioListenerTlsTest, IsNotConnectedWithoutACertificateAndSaysWhoItWas) {
  TestStream client(executor_, address(), ClientTls(/*certificate=*/false));
  EXPECT_THAT(log_.Await(1),
              ElementsAre(absl::StrCat("ended: UNAVAILABLE: ", peers_.Await(1).front(), " showed no certificate")));
  EXPECT_THAT(peers_.events().front(), MatchesRegex("127\\.0\\.0\\.1:[0-9]+"));
}

TEST_F(AsioListenerTlsTest, IsNotConnectedToAClientInTheClear) {
  TestStream client(executor_, address());
  ASSERT_THAT(client.log().Await(1), ElementsAre("connected"));
  client.Write("PRI * HTTP/2.0");
  EXPECT_THAT(log_.Await(1), ElementsAre(absl::StrCat("ended: UNAVAILABLE: ", peers_.Await(1).front(),
                                                      ": the other side does not speak TLS")));
}

// TLS itself responds to each KeyUpdate.
TEST_F(AsioListenerTlsTest, AClientThatReadsNoneOfItsAnswersIsNotAnsweredForEver) {
  ListenOnUnixSocket();  // unlike TCP, its buffer does not grow
  const int fd = ConnectToUnixSocket();
  TlsClientEnd client = NewClient();
  std::string output;
  ASSERT_TRUE(client.Receive("", output));
  while (!client.established()) {
    SendAll(fd, output);
    output.clear();
    ASSERT_TRUE(client.Receive(ReceiveAtLeast(fd, 1), output));
  }
  SendAll(fd, output);
  ASSERT_THAT(log_.Await(1), ElementsAre("connected"));
  int updates = 0;
  for (; updates < 1'000'000 && log_.events().size() == 1; ++updates) {
    ASSERT_EQ(SSL_key_update(client.ssl(), SSL_KEY_UPDATE_REQUESTED), 1);
    ASSERT_EQ(SSL_do_handshake(client.ssl()), 1);
    output.clear();
    ASSERT_TRUE(client.Receive("", output));
    if (send(fd, output.data(), output.size(), MSG_NOSIGNAL) < 0) break;
  }
  EXPECT_LT(updates, 100'000);
  EXPECT_THAT(log_.Await(2),
              ElementsAre("connected", "ended: UNAVAILABLE: a client reads none of the responses of TLS"));
  close(fd);
}

// A crowd of new connections must not delay established connections.
TEST_F(AsioListenerTlsTest, AnswersOneHandshakeATurn) {
  constexpr size_t kClients = 20;
  ListenOnUnixSocket();
  std::vector<pollfd> sockets;
  for (size_t i = 0; i < kClients; ++i)
    sockets.push_back({.fd = ConnectToUnixSocket(), .events = POLLIN, .revents = 0});
  ASSERT_EQ(peers_.Await(kClients).size(), kClients);
  std::string hello;
  ASSERT_TRUE(NewClient().Receive("", hello));
  testing::Watched<std::vector<size_t>> answered;  // completed handshakes by the end of each turn
  RunOn(executor_, [&] {
    executor_.SetEndOfTurn([&] {
      const int ready = poll(sockets.data(), sockets.size(), 0);
      answered.Change([&](std::vector<size_t>& turns) { turns.push_back(static_cast<size_t>(ready)); });
    });
    for (const pollfd& socket : sockets) SendAll(socket.fd, hello);
  });
  EXPECT_TRUE(
      answered.Await([](const std::vector<size_t>& turns) { return !turns.empty() && turns.back() == kClients; }));
  size_t before = 0;
  for (const size_t ready : answered.Get()) EXPECT_LE(ready, std::exchange(before, ready) + 1);
  RunOn(executor_, [&] { executor_.SetEndOfTurn(nullptr); });
  for (const pollfd& socket : sockets) close(socket.fd);
}

TEST_F(AsioListenerTlsTest, MayBeDroppedInTheHandshake) {
  TestStream client(executor_, address());
  ASSERT_THAT(client.log().Await(1), ElementsAre("connected"));
  ASSERT_EQ(peers_.Await(1).size(), 1U);
  RunOn(executor_, [this] { accepted_.clear(); });
  EXPECT_THAT(client.log().Await(2), ElementsAre("connected", "ended: OK"));
  EXPECT_THAT(log_.events(), ElementsAre());
}

}  // namespace
}  // namespace sluice
