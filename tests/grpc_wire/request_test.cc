#include "lib/grpc_wire/request.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;

TEST(RequestTest, HeadersInTheOrderOfTheProtocol) {
  const Metadata metadata = {{"authorization", "Bearer abc"}, {"trace-bin", "ab"}};
  const Metadata more = {{"x-user", "me"}};
  const RequestHead head = {.path = "/pkg.Service/Method",
                            .authority = "worker:1234",
                            .timeout = absl::Milliseconds(50),
                            .metadata = &metadata,
                            .more_metadata = &more};
  EXPECT_THAT(ToHeaders(head),
              ElementsAre(HeaderField{":method", "POST"}, HeaderField{":scheme", "http"},
                          HeaderField{":path", "/pkg.Service/Method"}, HeaderField{":authority", "worker:1234"},
                          HeaderField{"grpc-timeout", "50000000n"}, HeaderField{"te", "trailers"},
                          HeaderField{"content-type", "application/grpc"},
                          HeaderField{"user-agent", "grpc-sluice/" SLUICE_VERSION},
                          HeaderField{"grpc-accept-encoding", "identity,gzip"},
                          HeaderField{"authorization", "Bearer abc", true}, HeaderField{"trace-bin", "YWI"},
                          HeaderField{"x-user", "me"}));
}

TEST(RequestTest, WithoutTimeoutAndMetadata) {
  EXPECT_THAT(ToHeaders({.path = "/a/b", .authority = "w", .tls = true}),
              ElementsAre(HeaderField{":method", "POST"}, HeaderField{":scheme", "https"}, HeaderField{":path", "/a/b"},
                          HeaderField{":authority", "w"}, HeaderField{"te", "trailers"},
                          HeaderField{"content-type", "application/grpc"},
                          HeaderField{"user-agent", "grpc-sluice/" SLUICE_VERSION},
                          HeaderField{"grpc-accept-encoding", "identity,gzip"}));
}

TEST(FrameMessageTest, PutsTheLengthInFront) {
  EXPECT_EQ(FrameMessage(""), std::string("\0\0\0\0\0", 5));
  EXPECT_EQ(FrameMessage("abc"), std::string("\0\0\0\0\3abc", 8));
  EXPECT_EQ(FrameMessage(std::string(0x12345, 'x')), std::string("\0\0\1\x23\x45", 5) + std::string(0x12345, 'x'));
}

}  // namespace
}  // namespace sluice
