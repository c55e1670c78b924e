#include "lib/grpc_wire/wire_message.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/unit/grpc_wire/test_messages.h"

namespace sluice {
namespace {

TEST(DecompressTest, LeavesWhatIsNotCompressed) {
  WireMessage message{.bytes = GzipOf("hello")};
  ASSERT_TRUE(Decompress(message, 0).ok());
  EXPECT_EQ(message, (WireMessage{.bytes = GzipOf("hello")}));
}

TEST(DecompressTest, OfWhatIsCompressedTheBytesThatWereMeant) {
  WireMessage message{.bytes = GzipOf("hello"), .gzip = true};
  ASSERT_TRUE(Decompress(message, 5).ok());
  EXPECT_EQ(message, WireMessage{"hello"});
  ASSERT_TRUE(Decompress(message, 5).ok());
  EXPECT_EQ(message, WireMessage{"hello"}) << "once";
}

TEST(DecompressTest, ABombIsResourceExhausted) {
  WireMessage message{.bytes = GzipOf(std::string(16 << 20, '\0')), .gzip = true};
  EXPECT_EQ(Decompress(message, 1 << 20).code(), absl::StatusCode::kResourceExhausted);
}

TEST(DecompressTest, WhatDoesNotDecompressIsInternal) {
  for (const std::string& bytes : {std::string(), std::string("no gzip"), GzipOf("hello").substr(0, 10)}) {
    WireMessage message{.bytes = bytes, .gzip = true};
    EXPECT_EQ(Decompress(message, 100).code(), absl::StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace sluice
