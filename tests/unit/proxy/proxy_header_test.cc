#include "lib/proxy/proxy_header.h"

#include <string>

#include "absl/strings/match.h"
#include "tests/unit/http2/raw_frames.h"
#include "tests/unit/net/link_thread.h"
#include "tests/unit/net/test_listener.h"
#include "tests/unit/proxy/proxy_fixture.h"

namespace sluice::testing {
namespace {

using boost::asio::ip::make_address;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::StartsWith;

const std::string kHeaderBegins("\r\n\r\n\0\r\nQUIT\n\x21", 13);
constexpr size_t kIpv4HeaderBytes = 28;

TEST(ProxyHeaderTest, HasBothAddresses) {
  EXPECT_EQ(ProxyHeader(2, TcpEndpoint(make_address("10.0.0.7"), 0x1234), TcpEndpoint(make_address("10.0.0.8"), 80)),
            kHeaderBegins + std::string("\x11\x00\x0c\x0a\x00\x00\x07\x0a\x00\x00\x08\x12\x34\x00\x50", 15));
  const std::string ipv6 =
      ProxyHeader(2, TcpEndpoint(make_address("fd00::7"), 1), TcpEndpoint(make_address("fd00::8"), 2));
  const std::string network = std::string("\xfd") + std::string(14, '\0');
  EXPECT_EQ(ipv6, kHeaderBegins + std::string("\x21\x00\x24", 3) + network + "\x07" + network + "\x08" +
                      std::string("\x00\x01\x00\x02", 4));
}

TEST(ProxyHeaderTest, SaysThatAddressesAreUnknown) {
  const std::string unknown = kHeaderBegins + std::string(3, '\0');
  EXPECT_EQ(ProxyHeader(2, std::nullopt, std::nullopt), unknown);
  const TcpEndpoint ipv4(make_address("10.0.0.7"), 1);
  const TcpEndpoint ipv6(make_address("fd00::8"), 2);
  EXPECT_EQ(ProxyHeader(2, ipv4, ipv6), unknown);
  EXPECT_EQ(ProxyHeader(1, std::nullopt, std::nullopt), "PROXY UNKNOWN\r\n");
  EXPECT_EQ(ProxyHeader(1, ipv4, ipv6), "PROXY UNKNOWN\r\n");
}

// The longest line may have 107 bytes.
TEST(ProxyHeaderTest, OfVersion1IsALine) {
  EXPECT_EQ(ProxyHeader(1, TcpEndpoint(make_address("10.0.0.7"), 4660), TcpEndpoint(make_address("10.0.0.8"), 80)),
            "PROXY TCP4 10.0.0.7 10.0.0.8 4660 80\r\n");
  EXPECT_EQ(ProxyHeader(1, TcpEndpoint(make_address("fe80::7%3"), 1), TcpEndpoint(make_address("fd00::8"), 65535)),
            "PROXY TCP6 fe80::7 fd00::8 1 65535\r\n");
  const TcpEndpoint longest(make_address("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), 65535);
  EXPECT_LE(ProxyHeader(1, longest, longest).size(), 107U);
}

// Parameter: whether tunnels take turns in the schedule.
class ProxyHeaderTunnelTest : public ProxyTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    options_.proxy.schedule_worker_tunnels = GetParam();
    options_.proxy_protocol = {"127.0.0.1"};
  }
  void TearDown() override { proxy_.reset(); }
};

INSTANTIATE_TEST_SUITE_P(Scheduled, ProxyHeaderTunnelTest, ::testing::Bool());

TEST_P(ProxyHeaderTunnelTest, AWorkerThatSpeaksFirstHasTheHeaderBefore) {
  EventLog headers;
  TestListener worker("127.0.0.1:0", [&](int fd) {
    headers.Add(ReceiveAtLeast(fd, kIpv4HeaderBytes));
    SendAll(fd, "greeting");
    ReceiveAll(fd);
  });
  StartProxy();
  TestSocket client = ConnectTo(address());
  client.Send(absl::StrCat("CONNECT ", worker.address().text, " HTTP/1.1\r\n\r\n"));
  EXPECT_THAT(client.ReceiveUntil("greeting"), StartsWith("HTTP/1.1 200 "));
  const std::string header = headers.Await(1).front();
  EXPECT_THAT(header, StartsWith(kHeaderBegins + std::string("\x11\x00\x0c\x7f\x00\x00\x01\x7f\x00\x00\x01", 11)));
  EXPECT_EQ(header.size(), kIpv4HeaderBytes) << "and no more";
}

TEST_P(ProxyHeaderTunnelTest, Http2IsATunnelToSuchAWorker) {
  EventLog received;
  TestListener worker("127.0.0.1:0", [&](int fd) {
    received.Add(ReceiveAtLeast(fd, kIpv4HeaderBytes + sizeof(raw::kPreface) - 1).substr(kIpv4HeaderBytes));
  });
  StartProxy();
  TestSocket client = ConnectTo(address());
  client.Send(absl::StrCat("CONNECT ", worker.address().text, " HTTP/1.1\r\n\r\n", raw::kPreface));
  EXPECT_THAT(received.Await(1), ElementsAre(raw::kPreface));
}

TEST_P(ProxyHeaderTunnelTest, OfVersion1ComesBeforeTheRequest) {
  options_.proxy.proxy_protocol_version = 1;
  EventLog received;
  TestListener worker("127.0.0.1:0", [&](int fd) {
    std::string bytes;
    while (!absl::EndsWith(bytes, "?")) bytes += ReceiveAtLeast(fd, 1);
    received.Add(bytes);
  });
  StartProxy();
  TestSocket client = ConnectTo(address());
  client.Send(absl::StrCat("CONNECT ", worker.address().text, " HTTP/1.1\r\n\r\n?"));
  EXPECT_THAT(received.Await(1).front(), AllOf(StartsWith("PROXY TCP4 127.0.0.1 127.0.0.1 "), EndsWith("\r\n?")));
}

TEST_P(ProxyHeaderTunnelTest, OtherWorkersReceiveNone) {
  options_.proxy_protocol = {"127.0.0.2"};
  EventLog received;
  TestListener worker("127.0.0.1:0", [&](int fd) { received.Add(ReceiveAtLeast(fd, 1)); });
  StartProxy();
  TestSocket client = ConnectTo(address());
  client.Send(absl::StrCat("CONNECT ", worker.address().text, " HTTP/1.1\r\n\r\n?"));
  EXPECT_THAT(received.Await(1), ElementsAre("?"));
}

}  // namespace
}  // namespace sluice::testing
