#include "lib/storage/blocks/sru_message.h"

#include <string>

#include "gtest/gtest.h"

namespace sluice {
namespace {

v1::ReadSruResponse Response(const std::string& data, int missing) {
  v1::ReadSruResponse response;
  response.set_data(data);
  for (int i = 0; i < missing; ++i) {
    v1::MissingSruRange& range = *response.add_missing();
    range.set_offset(100 * static_cast<uint64_t>(i));
    range.set_length(7);
    range.set_reason("below");
    range.set_data_loss(i % 2 == 1);
  }
  return response;
}

TEST(SruMessageTest, ReadsWhatTheGeneratedParserReads) {
  for (const size_t bytes : {0, 1, 127, 128, 20'000, 65536}) {
    for (const int missing : {0, 1, 3}) {
      const v1::ReadSruResponse response = Response(std::string(bytes, 'x'), missing);
      const std::string message = response.SerializeAsString();
      SruMessage parsed;
      ASSERT_TRUE(ParseSruMessage(message, parsed));
      EXPECT_EQ(parsed.data, response.data());
      ASSERT_EQ(parsed.missing.size(), static_cast<size_t>(missing));
      for (int i = 0; i < missing; ++i) {
        EXPECT_EQ(parsed.missing[static_cast<size_t>(i)].SerializeAsString(), response.missing(i).SerializeAsString());
      }
    }
  }
}

TEST(SruMessageTest, FieldsThatItDoesNotKnowAreSkipped) {
  // Field 9 with the number 5, and field 10 with two bytes.
  const std::string message = std::string("\x48\x05\x52\x02hi", 6) + Response("abc", 1).SerializeAsString();
  SruMessage parsed;
  ASSERT_TRUE(ParseSruMessage(message, parsed));
  EXPECT_EQ(parsed.data, "abc");
  EXPECT_EQ(parsed.missing.size(), 1u);
}

TEST(SruMessageTest, WhateverIsCutOffIsNoMessage) {
  const std::string message = Response("abcdefgh", 2).SerializeAsString();
  const size_t data_bytes = 2 + 8;
  for (size_t bytes = 1; bytes < message.size(); ++bytes) {
    v1::ReadSruResponse whole;
    SruMessage parsed;
    EXPECT_EQ(ParseSruMessage(absl::string_view(message).substr(0, bytes), parsed),
              whole.ParseFromString(message.substr(0, bytes)))
        << bytes;
  }
  SruMessage parsed;
  EXPECT_TRUE(ParseSruMessage(absl::string_view(message).substr(0, data_bytes), parsed));
}

TEST(SruMessageTest, LengthsBeyondTheEndAreRefused) {
  for (const std::string& message :
       {std::string("\x0a\x64!"), std::string("\x0a\xff\xff\xff\xff\x0f!"), std::string("\x12\x64!"),
        std::string("\x12\xff\xff\xff\xff\x0f!"), std::string("\x0a"), std::string("\x07")}) {
    SruMessage parsed;
    EXPECT_FALSE(ParseSruMessage(message, parsed)) << testing::PrintToString(message);
  }
}

}  // namespace
}  // namespace sluice
