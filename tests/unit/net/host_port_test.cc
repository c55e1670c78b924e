#include "lib/net/host_port.h"

#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(ParseHostPortTest, SplitsAtTheLastColon) {
  struct Case {
    const char* text;
    const char* host;
    int port;
  };
  for (const Case& good :
       {Case{"10.0.0.7:9100", "10.0.0.7", 9100}, Case{"localhost:0", "localhost", 0}, Case{"[::1]:65535", "::1", 65535},
        Case{":9100", "", 9100}, Case{"*:9100", "", 9100}, Case{"[::]:1", "::", 1}}) {
    const auto parsed = ParseHostPort(good.text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->host, good.host);
    EXPECT_EQ(parsed->port, good.port);
  }
}

TEST(ParseHostPortTest, RefusesWhatIsNoAddress) {
  for (const char* bad :
       {"", "localhost", "localhost:", "localhost:http", "localhost:65536", "localhost:-1", "localhost:+1",
        "localhost: 1", "localhost:99999999999", "::1:9100", "[::1", "[::1]", "http://localhost:1", "a b:1"}) {
    const auto parsed = ParseHostPort(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(parsed.status().message()), ::testing::StartsWith("\"" + std::string(bad) + "\" has "));
  }
}

}  // namespace
}  // namespace sluice
