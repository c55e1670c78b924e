#include "lib/grpc_wire/request.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/grpc_wire/message_reader.h"

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

TEST(RequestTest, SaysThatMessagesMayBeCompressed) {
  EXPECT_THAT(ToHeaders({.path = "/a/b", .authority = "w", .gzip = true}),
              ::testing::Contains(HeaderField{"grpc-encoding", "gzip"}));
}

TEST(FrameCompressedTest, WhatGetsSmallerIsCompressedAndSaysSo) {
  const std::string message(100'000, 'x');
  const std::string framed = FrameCompressed(message);
  EXPECT_LT(framed.size(), 1000u);
  MessageReader reader(100'000);
  ASSERT_TRUE(reader.SetEncoding("gzip").ok());
  ASSERT_TRUE(reader.Read(framed).ok());
  WireMessage read;
  ASSERT_TRUE(reader.TakeMessage(read));
  EXPECT_TRUE(read.gzip);
  ASSERT_TRUE(Decompress(read, 100'000).ok());
  EXPECT_EQ(read.bytes, message);
  EXPECT_FALSE(reader.in_message());
}

TEST(FrameCompressedTest, WhatDoesNotGetSmallerStaysAsItIs) {
  EXPECT_EQ(FrameCompressed(""), FrameMessage(""));
  EXPECT_EQ(FrameCompressed("abc"), FrameMessage("abc"));
}

TEST(FrameMessageTest, PutsTheLengthInFront) {
  EXPECT_EQ(FrameMessage(""), std::string("\0\0\0\0\0", 5));
  EXPECT_EQ(FrameMessage("abc"), std::string("\0\0\0\0\3abc", 8));
  EXPECT_EQ(FrameMessage(std::string(0x12345, 'x')), std::string("\0\0\1\x23\x45", 5) + std::string(0x12345, 'x'));
}

}  // namespace
}  // namespace sluice
