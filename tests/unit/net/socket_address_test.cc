#include "lib/net/socket_address.h"

#include <cstring>
#include <string>
#include <utility>

#include <boost/asio/ip/address.hpp>
#include <sys/socket.h>
#include <sys/un.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/has_code.h"

namespace sluice {
namespace {

using boost::asio::ip::make_address;
using boost::asio::ip::tcp;
using testing::HasCode;
using ::testing::HasSubstr;

TEST(SocketAddressTest, AnAddressOfTcpIsParsedAndFormatted) {
  for (const auto& [text, endpoint] : {std::pair("10.0.0.1:7000", tcp::endpoint(make_address("10.0.0.1"), 7000)),
                                       {"[::1]:65535", tcp::endpoint(make_address("::1"), 65535)},
                                       {"0.0.0.0:0", tcp::endpoint(make_address("0.0.0.0"), 0)}}) {
    const auto parsed = ParseSocketAddress(text, SocketUse::kListen);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->protocol().family(), endpoint.protocol().family());
    ASSERT_EQ(parsed->size(), endpoint.size());
    EXPECT_EQ(std::memcmp(parsed->data(), endpoint.data(), endpoint.size()), 0);
    EXPECT_EQ(FormatSocketAddress(endpoint), text);
    EXPECT_EQ(ParseSocketAddress(text, SocketUse::kConnect).ok(), endpoint.port() != 0);
  }
}

TEST(SocketAddressTest, AUnixSocketHasAPathOrAnAbstractName) {
  for (const auto& [text, name] :
       {std::pair("unix:/run/s", std::string("/run/s")), {"unix-abstract:s", std::string("\0s", 2)}}) {
    const auto parsed = ParseSocketAddress(text, SocketUse::kListen);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->protocol().family(), AF_UNIX);
    const char* const path = reinterpret_cast<const sockaddr_un*>(parsed->data())->sun_path;
    EXPECT_EQ(std::string(path, name.size()), name);
  }
}

TEST(SocketAddressTest, AListenerMayNameLocalhostOrAllAddresses) {
  for (const auto& [text, meaning] :
       {std::pair("localhost:7000", "127.0.0.1:7000"), {"*:7000", "[::]:7000"}, {":7000", "[::]:7000"}}) {
    EXPECT_EQ(FormatSocketAddress(*ParseSocketAddress(text, SocketUse::kListen)), meaning);
    EXPECT_EQ(FormatSocketAddress(*ResolveListenAddress(text)), meaning);
    EXPECT_FALSE(ParseSocketAddress(text, SocketUse::kConnect).ok()) << text;
  }
  EXPECT_THAT(ResolveListenAddress("no-such-host.invalid:1").status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(ResolveListenAddress("unix:/run/s").status(), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST(SocketAddressTest, AllElseIsNamed) {
  for (const std::string& text :
       {std::string("10.0.0.1"), std::string("host:7000"), std::string("127.0.0.1:99999"), std::string(),
        std::string("unix:"), "unix:/" + std::string(107, 'x'), std::string("unix-abstract:")}) {
    const absl::Status refused = ParseSocketAddress(text, SocketUse::kListen).status();
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument)) << text;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("\"" + text + "\" is neither"));
  }
  EXPECT_TRUE(ParseSocketAddress("unix:/" + std::string(106, 'x'), SocketUse::kConnect).ok());
}

}  // namespace
}  // namespace sluice
