#include "lib/tcp/peer_name.h"

#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace sluice {
namespace {

std::string Parsed(const std::string& peer) {
  const std::optional<TcpEndpoint> endpoint = ParsePeerName(peer);
  if (!endpoint.has_value()) return "none";
  std::ostringstream text;
  text << *endpoint;
  return text.str();
}

TEST(ParsePeerNameTest, ReadsTheNamesOfGrpc) {
  EXPECT_EQ(Parsed("ipv4:10.0.0.1:20000"), "10.0.0.1:20000");
  EXPECT_EQ(Parsed("ipv4:127.0.0.1:0"), "127.0.0.1:0");
  EXPECT_EQ(Parsed("ipv4:255.255.255.255:65535"), "255.255.255.255:65535");
  EXPECT_EQ(Parsed("ipv6:[::1]:20000"), "[::1]:20000");
  EXPECT_EQ(Parsed("ipv6:[2001:db8::7]:443"), "[2001:db8::7]:443");
}

TEST(ParsePeerNameTest, ReadsTheNamesOfNewerGrpcWithBracketsAsInUris) {
  EXPECT_EQ(Parsed("ipv6:%5B::1%5D:20000"), "[::1]:20000");
  EXPECT_EQ(Parsed("ipv6:%5B2001:db8::7%5D:443"), "[2001:db8::7]:443");
  EXPECT_EQ(Parsed("ipv6:%5Bfe80::1%25lo%5D:443"), "[fe80::1%lo]:443");
}

TEST(ParsePeerNameTest, GivesAnIpv4AddressThatAnIpv6SocketStandsForAsIpv4) {
  EXPECT_EQ(Parsed("ipv6:[::ffff:10.0.0.1]:20000"), "10.0.0.1:20000");
  EXPECT_EQ(Parsed("ipv6:%5B::ffff:10.0.0.1%5D:20000"), "10.0.0.1:20000");
  EXPECT_EQ(ParsePeerName("ipv6:[::ffff:10.0.0.1]:1"), ParsePeerName("ipv4:10.0.0.1:1"));
}

TEST(ParsePeerNameTest, GivesNoneForWhatIsNotTcp) {
  for (const char* peer : {"", "unix:/run/worker", "unix-abstract:worker", "unknown", "dns:///worker:1", "worker:1",
                           "10.0.0.1:20000", "[::1]:20000", "fd:7", "ipv4", "IPV4:10.0.0.1:1"}) {
    EXPECT_EQ(Parsed(peer), "none") << peer;
  }
}

TEST(ParsePeerNameTest, GivesNoneForNamesThatAreNotWhole) {
  for (const char* peer : {"ipv4:",
                           "ipv4::",
                           "ipv4:10.0.0.1",
                           "ipv4:10.0.0.1:",
                           "ipv4:10.0.0.1:http",
                           "ipv4:10.0.0.1:65536",
                           "ipv4:10.0.0.1:-1",
                           "ipv4:10.0.0.1:99999999999",
                           "ipv4:10.0.0:1",
                           "ipv4:10.0.0.256:1",
                           "ipv4:worker:1",
                           "ipv4:::1:1",
                           "ipv4:[::1]:1",
                           "ipv6:",
                           "ipv6:::1:1",
                           "ipv6:[::1:1",
                           "ipv6:::1]:1",
                           "ipv6:[::1]",
                           "ipv6:[::1]:",
                           "ipv6:[]:1",
                           "ipv6:[10.0.0.1]:1",
                           "ipv6:%5B::1:1",
                           "ipv6:[::1%5D:1",
                           "ipv6:[::g]:1"}) {
    EXPECT_EQ(Parsed(peer), "none") << peer;
  }
}

}  // namespace
}  // namespace sluice
