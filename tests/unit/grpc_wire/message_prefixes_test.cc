#include "lib/grpc_wire/message_prefixes.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "gtest/gtest.h"
#include "lib/grpc_wire/request.h"

namespace sluice {
namespace {

TEST(MessagePrefixesTest, ToldFromTheMessagesHoweverTheBytesAreCut) {
  const std::string bytes = FrameMessage("first") + FrameMessage("") + FrameMessage(std::string(300, 'x'));
  for (size_t step = 1; step <= bytes.size(); ++step) {
    MessagePrefixes prefixes;
    int64_t message_bytes = 0;
    int64_t prefix_bytes = 0;
    for (size_t at = 0; at < bytes.size(); at += step) {
      const MessagePrefixes::Part part = prefixes.Read(absl::string_view(bytes).substr(at, step));
      EXPECT_EQ(part.message_bytes + part.prefix_bytes, std::min(step, bytes.size() - at));
      message_bytes += part.message_bytes;
      prefix_bytes += part.prefix_bytes;
    }
    EXPECT_EQ(message_bytes, 305) << step;
    EXPECT_EQ(prefix_bytes, 15) << step;
    EXPECT_EQ(prefixes.pending_message_bytes(), 0) << step;
  }
}

TEST(MessagePrefixesTest, TellsWhenAPrefixIsWholeAndWhatItPromises) {
  MessagePrefixes prefixes;
  const std::string bytes = FrameMessage(std::string(70'000, 'x'));
  EXPECT_FALSE(prefixes.Read(bytes.substr(0, 4)).whole_prefix);
  EXPECT_EQ(prefixes.pending_message_bytes(), 0);
  EXPECT_TRUE(prefixes.Read(bytes.substr(4, 1)).whole_prefix);
  EXPECT_EQ(prefixes.pending_message_bytes(), 70'000);
  EXPECT_FALSE(prefixes.Read(bytes.substr(5, 69'999)).whole_prefix);
  EXPECT_EQ(prefixes.pending_message_bytes(), 1);
  prefixes.Read(bytes.substr(70'004));
  EXPECT_EQ(prefixes.pending_message_bytes(), 0);
}

TEST(MessagePrefixesTest, CountsTheMessagesThatHaveBegun) {
  MessagePrefixes prefixes;
  prefixes.Read(std::string("\0\0\0\0", 4));
  EXPECT_EQ(prefixes.messages(), 0);
  prefixes.Read(std::string("\2a", 2));
  EXPECT_EQ(prefixes.messages(), 1);
  prefixes.Read(std::string("b\0\0\0\0\0\0\0\0\0\1", 11));
  EXPECT_EQ(prefixes.messages(), 3);
}

TEST(MessagePrefixesTest, TheLargestLengthIsNotNegative) {
  MessagePrefixes prefixes;
  EXPECT_TRUE(prefixes.Read(std::string("\0\xff\xff\xff\xff", 5)).whole_prefix);
  EXPECT_EQ(prefixes.pending_message_bytes(), 4294967295);
}

}  // namespace
}  // namespace sluice
