// Listeners with TLS, on real sockets.
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/link/asio_executor.h"
#include "lib/link/asio_listener.h"
#include "lib/link/tls_context.h"
#include "tests/link/link_thread.h"
#include "tests/link/test_certificates.h"
#include "tests/link/test_listener.h"
#include "tests/link/test_stream.h"
#include "tests/link/tls_end.h"

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

// Says back what it is told, and logs it.
class Accepted final : public StreamSocketEvents {
 public:
  Accepted(EventLog& log, const AcceptedConnection& connection) : log_(log), socket_(connection.start(*this)) {}

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
            accepted_.push_back(std::make_unique<Accepted>(log_, connection));
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

  TestCertificates certificates_;
  std::shared_ptr<const TlsContext> tls_;
  AsioExecutor executor_;
  EventLog log_;
  EventLog peers_;
  std::unique_ptr<AsioListener> listener_;
  std::vector<std::unique_ptr<Accepted>> accepted_;
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

// Each KeyUpdate is answered by TLS itself.
TEST_F(AsioListenerTlsTest, AClientThatReadsNoneOfItsAnswersIsNotAnsweredForEver) {
  const std::string name = absl::StrCat("sluice-listener-tls-test-", getpid());
  Listen("unix-abstract:" + name);  // whose sockets do not hold more and more, as those of TCP
  sockaddr_un place{.sun_family = AF_UNIX, .sun_path = {}};
  name.copy(place.sun_path + 1, sizeof(place.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&place),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
            0);
  TlsClientEnd client({.ca_file = certificates_.ca_file(), .files = certificates_.Make("client")});
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
  EXPECT_THAT(log_.Await(2), ElementsAre("connected", "ended: UNAVAILABLE: a client reads none of the answers of TLS"));
  close(fd);
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
