#include "lib/proxy/connection_age.h"

#include <array>
#include <memory>
#include <string>
#include <utility>

#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/proxy/proxy_fixture.h"
#include "tests/unit/tls/test_certificates.h"
#include "tests/unit/tls/tls_end.h"

namespace sluice::testing {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Step = ConnectionAge::Step;

constexpr TimePoint kBegin{hours(1)};
constexpr seconds kGrace{10};

TEST(ConnectionAgeTest, HasNoEndUnlessItBegins) {
  ConnectionAge age;
  EXPECT_EQ(age.Look(kBegin + hours(24'000), kGrace), Step::kNone);
}

TEST(ConnectionAgeTest, TakesEachStepOnce) {
  ConnectionAge age;
  age.Begin(kBegin, seconds(100), 0.5);
  EXPECT_EQ(age.Look(kBegin + seconds(99), kGrace), Step::kNone);
  EXPECT_EQ(age.Look(kBegin + seconds(100), kGrace), Step::kAnnounce);
  EXPECT_EQ(age.Look(kBegin + seconds(101), kGrace), Step::kGoAway);
  EXPECT_EQ(age.Look(kBegin + seconds(109), kGrace), Step::kNone);
  EXPECT_EQ(age.Look(kBegin + seconds(110), kGrace), Step::kEnd);
  EXPECT_EQ(age.Look(kBegin + seconds(111), kGrace), Step::kNone);
}

TEST(ConnectionAgeTest, DiffersByATenthEachWay) {
  for (const auto& [random, end] : {std::pair(0.0, seconds(90)), std::pair(1.0, seconds(110))}) {
    ConnectionAge age;
    age.Begin(kBegin, seconds(100), random);
    EXPECT_EQ(age.Look(kBegin + end - milliseconds(1), kGrace), Step::kNone);
    EXPECT_EQ(age.Look(kBegin + end + milliseconds(1), kGrace), Step::kAnnounce);
  }
}

TEST(ConnectionAgeTest, EndsWithoutAGraceToo) {
  ConnectionAge age;
  age.Begin(kBegin, seconds(1), 0.5);
  for (const Step step : {Step::kAnnounce, Step::kGoAway, Step::kEnd}) {
    EXPECT_EQ(age.Look(kBegin + seconds(2), seconds(0)), step);
  }
}

// A proxy whose clients must connect again after a second.
class OldConnectionTest : public ProxyTest {
 protected:
  void SetUp() override { options_.proxy.max_connection_age = seconds(1); }
  void TearDown() override { proxy_.reset(); }

  TestHttp2Server worker_{[](TestHttp2Server::Call& call) {
    if (call.request() != "hold") call.Answer("!");
  }};
};

TEST_F(OldConnectionTest, AnIdleOneEndsAndTheClientMayComeBack) {
  StartProxy();
  const auto client = NewClient();
  EXPECT_EQ(StatusOf(*client, worker_.address()), "0");
  EXPECT_TRUE(Await({client.get()}, [&] { return client->over(); }));
  EXPECT_TRUE(client->session().going_away());
  EXPECT_EQ(client->session().goaway_error(), Http2Error::kNoError);
  ExpectServes(worker_.address());
}

TEST_F(OldConnectionTest, ACallThatGoesOnEndsBeforeIt) {
  options_.proxy.max_connection_age_grace = hours(1);
  StartProxy();
  const auto client = NewClient();
  const auto& held = client->Open(Head(worker_.address()), FrameMessage("hold"));
  EXPECT_TRUE(Await({client.get()}, [&] { return client->session().going_away(); }));
  EXPECT_FALSE(held.closed.has_value());
  worker_.Run([&] { worker_.calls().front()->Answer("late"); });
  EXPECT_TRUE(Await({client.get()}, [&] { return client->over(); }));
  EXPECT_EQ(held.status(), "0");
  EXPECT_EQ(held.data, FrameMessage("late"));
}

TEST_F(OldConnectionTest, ACallThatOutlastsTheGraceFails) {
  options_.proxy.max_connection_age_grace = seconds(1);
  StartProxy();
  const auto client = NewClient();
  const auto& held = client->Open(Head(worker_.address()), FrameMessage("hold"));
  EXPECT_TRUE(Await({client.get()}, [&] { return client->over(); }));
  EXPECT_EQ(held.status(), "14");
  EXPECT_THAT(held.Field("grpc-message"), HasSubstr("max_connection_age"));
  EXPECT_TRUE(AwaitIdle());
}

// Its client has no certificate that could be checked again.
TEST_F(OldConnectionTest, ATunnelWithoutACertificateGoesOn) {
  options_.proxy.max_connection_age_grace = seconds(0);
  StartProxy();
  TestListener echo("127.0.0.1:0", [](int fd) { SendAll(fd, ReceiveAll(fd)); });
  TestSocket tunnel = ConnectTo(address());
  tunnel.Send(absl::StrCat("CONNECT ", echo.address().text, " HTTP/1.1\r\n\r\n"));
  tunnel.ReceiveUntil("\r\n\r\n");
  tunnel.Send("\1before");
  EXPECT_TRUE(AwaitMetric("sluice_proxy_tunnels", 1));
  const auto later = NewClient();
  EXPECT_TRUE(Await({later.get()}, [&] { return later->over(); }));
  tunnel.Send(", after");
  shutdown(tunnel.fd(), SHUT_WR);
  EXPECT_EQ(tunnel.ReceiveAll(), "\1before, after");
}

TEST_F(OldConnectionTest, ATunnelOfACertificateEndsByAResetAfterTheGrace) {
  TestCertificates signer;
  const auto own = signer.Make("listener");
  options_.proxy.max_connection_age_grace = seconds(0);
  options_.listeners = {{.address = "127.0.0.1:0", .route = "", .tls = true}};
  options_.listener_tls = ListenerTls{
      .files = {.certificate_file = own.certificate_file, .key_file = own.key_file, .client_ca_file = signer.ca_file()},
      .client_names = {}};
  StartProxy();
  TestListener echo("127.0.0.1:0", [](int fd) { SendAll(fd, ReceiveAll(fd)); });
  TestSocket socket = ConnectTo(address());
  TlsClientEnd client({.ca_file = signer.ca_file(), .files = signer.Make("client")});
  std::string output;
  ASSERT_TRUE(client.Receive("", output));
  std::array<char, 16384> buffer;
  bool asked = false;
  while (true) {
    if (client.established() && !std::exchange(asked, true)) {
      output += client.Send(absl::StrCat("CONNECT ", echo.address().text, " HTTP/1.1\r\n\r\n\1question"));
    }
    if (!output.empty()) socket.Send(std::exchange(output, {}));
    const ssize_t got = recv(socket.fd(), buffer.data(), buffer.size(), 0);
    if (got <= 0) break;
    ASSERT_TRUE(client.Receive({buffer.data(), static_cast<size_t>(got)}, output));
  }
  EXPECT_THAT(client.received(), HasSubstr("200 Connection established"));
  EXPECT_FALSE(client.ended()) << "what was cut off must not seem complete";
  EXPECT_TRUE(AwaitMetric("sluice_proxy_tunnels", 0));
}

}  // namespace
}  // namespace sluice::testing
