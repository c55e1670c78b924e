#include "lib/grpc_wire/message_reader.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/request.h"
#include "tests/unit/grpc_wire/test_messages.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMaxBytes = 1 << 20;

std::vector<std::string> TakeAll(MessageReader& reader) {
  std::vector<std::string> messages;
  for (WireMessage message; reader.TakeMessage(message);) messages.push_back(message.bytes);
  return messages;
}

TEST(MessageReaderTest, AMessageInOneChunk) {
  MessageReader reader(kMaxBytes);
  ASSERT_TRUE(reader.Read(FrameMessage("hello")).ok());
  EXPECT_EQ(reader.messages(), 1);
  EXPECT_THAT(TakeAll(reader), ElementsAre("hello"));
  EXPECT_FALSE(reader.in_message());
  EXPECT_EQ(reader.messages(), 1);
}

TEST(MessageReaderTest, AMessageByteByByte) {
  const std::string framed = FrameMessage("hello");
  MessageReader reader(kMaxBytes);
  WireMessage message;
  for (size_t i = 0; i + 1 < framed.size(); ++i) {
    ASSERT_TRUE(reader.Read(framed.substr(i, 1)).ok());
    EXPECT_TRUE(reader.in_message());
    const auto rest = static_cast<int64_t>(framed.size() - i - 1);
    EXPECT_EQ(reader.pending_message_bytes(), rest > 5 ? 0 : rest) << i;
    EXPECT_FALSE(reader.TakeMessage(message));
  }
  ASSERT_TRUE(reader.Read(framed.substr(framed.size() - 1)).ok());
  EXPECT_EQ(reader.pending_message_bytes(), 0);
  EXPECT_FALSE(reader.in_message());
  EXPECT_THAT(TakeAll(reader), ElementsAre("hello"));
}

TEST(MessageReaderTest, NothingAtAllIsNoMessage) {
  MessageReader reader(kMaxBytes);
  ASSERT_TRUE(reader.Read("").ok());
  EXPECT_FALSE(reader.in_message());
  EXPECT_EQ(reader.messages(), 0);
}

TEST(MessageReaderTest, AnEmptyMessageIsAMessage) {
  MessageReader reader(0);
  ASSERT_TRUE(reader.Read(FrameMessage("")).ok());
  EXPECT_FALSE(reader.in_message());
  EXPECT_THAT(TakeAll(reader), ElementsAre(""));
}

TEST(MessageReaderTest, ManyMessagesInOneChunk) {
  std::string bytes;
  std::vector<std::string> sent;
  for (int i = 0; i < 1000; ++i) {
    sent.push_back(std::string(i % 7, 'x') + std::to_string(i));
    bytes += FrameMessage(sent.back());
  }
  bytes += FrameMessage("cut").substr(0, 6);
  MessageReader reader(kMaxBytes);
  ASSERT_TRUE(reader.Read(bytes).ok());
  EXPECT_EQ(TakeAll(reader), sent);
  EXPECT_EQ(reader.pending_message_bytes(), 2);
  EXPECT_EQ(reader.messages(), 1000);
}

TEST(MessageReaderTest, AMessageOfExactlyTheBoundIsTaken) {
  const std::string largest(1000, 'x');
  MessageReader reader(1000);
  ASSERT_TRUE(reader.Read(FrameMessage(largest)).ok());
  EXPECT_THAT(TakeAll(reader), ElementsAre(largest));
}

TEST(MessageReaderTest, ATooLargeMessageFailsWithItsPrefix) {
  MessageReader reader(1000);
  const absl::Status status = reader.Read(FrameMessage(std::string(1001, 'x')).substr(0, 5));
  EXPECT_EQ(status, absl::ResourceExhaustedError("message of 1001 bytes is larger than 1000 bytes"));
  EXPECT_EQ(reader.pending_message_bytes(), 0);
}

TEST(MessageReaderTest, TheLargestSizeThereIs) {
  const std::string prefix("\0\xff\xff\xff\xff", 5);
  MessageReader bounded(kMaxBytes);
  EXPECT_EQ(bounded.Read(prefix).code(), absl::StatusCode::kResourceExhausted);
  MessageReader unbounded(int64_t{1} << 40);
  ASSERT_TRUE(unbounded.Read(prefix).ok());
  EXPECT_EQ(unbounded.pending_message_bytes(), 4294967295);
}

// Gives memory for a message of `bytes` to the buffers, and returns its address.
const char* GiveMemory(MessageBuffers& buffers, size_t bytes) {
  std::string kept;
  kept.reserve(bytes);
  const char* const memory = kept.data();
  buffers.Give(std::move(kept));
  return memory;
}

TEST(MessageReaderTest, ReadsIntoMemoryThatIsNeededNoLonger) {
  const std::string message(10'000, 'x');
  MessageBuffers buffers;
  const char* const memory = GiveMemory(buffers, message.size());
  MessageReader reader(kMaxBytes, 2, &buffers);
  ASSERT_TRUE(reader.Read(FrameMessage(message)).ok());
  WireMessage first;
  ASSERT_TRUE(reader.TakeMessage(first));
  EXPECT_EQ(first.bytes, message);
  EXPECT_EQ(first.bytes.data(), memory);
  ASSERT_TRUE(reader.Read(FrameMessage(message)).ok());
  EXPECT_THAT(TakeAll(reader), ElementsAre(message)) << "none is kept";
}

// A held response arrives like this: the prefix and a spare byte, then the rest with its grant.
TEST(MessageReaderTest, ReadsAHeldMessageIntoMemoryThatIsNeededNoLonger) {
  const std::string message = "!" + std::string(10'000, 'x');
  const std::string framed = FrameMessage(message);
  MessageBuffers buffers;
  const char* const memory = GiveMemory(buffers, message.size());
  MessageReader reader(kMaxBytes, 1, &buffers);
  ASSERT_TRUE(reader.Read(framed.substr(0, 6)).ok());
  EXPECT_GT(buffers.kept_bytes(), 0u) << "one byte needs no memory";
  ASSERT_TRUE(reader.Read(framed.substr(6)).ok());
  WireMessage whole;
  ASSERT_TRUE(reader.TakeMessage(whole));
  EXPECT_EQ(whole.bytes, message);
  EXPECT_EQ(whole.bytes.data(), memory);
}

TEST(MessageReaderTest, AfterAnErrorNothingIsRead) {
  MessageReader reader(10);
  const absl::Status error = reader.Read(FrameMessage("good") + FrameMessage(std::string(11, 'x')));
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(reader.Read(FrameMessage("more")), error);
  EXPECT_EQ(reader.Read(""), error);
  EXPECT_THAT(TakeAll(reader), ElementsAre("good"));
}

TEST(MessageReaderTest, CompressedMessagesStayAsTheyCame) {
  MessageReader reader(kMaxBytes);
  ASSERT_TRUE(reader.SetEncoding("gzip").ok());
  ASSERT_TRUE(reader.Read(CompressedMessage("hello") + FrameMessage("plain") + Framed(1, "no gzip")).ok());
  std::vector<WireMessage> messages(3);
  for (WireMessage& message : messages) ASSERT_TRUE(reader.TakeMessage(message));
  EXPECT_THAT(messages, ElementsAre(WireMessage{GzipOf("hello"), true}, WireMessage{"plain", false},
                                    WireMessage{"no gzip", true}));
}

TEST(MessageReaderTest, ACompressedMessageNeedsAnEncoding) {
  for (const char* encoding : {"", "identity"}) {
    MessageReader reader(kMaxBytes);
    ASSERT_TRUE(reader.SetEncoding(encoding).ok());
    const absl::Status status = reader.Read(CompressedMessage("hello"));
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), HasSubstr("grpc-encoding names no compression"));
  }
}

TEST(MessageReaderTest, UnknownEncodingsAreUnimplemented) {
  for (const char* encoding : {"deflate", "snappy", "GZIP", "gzip,identity"}) {
    MessageReader reader(kMaxBytes);
    const absl::Status status = reader.SetEncoding(encoding);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), HasSubstr(encoding));
  }
}

TEST(MessageReaderTest, AFlagThatIsNeitherIsInternal) {
  for (const char flag : {'\2', '\x7f', '\xff'}) {
    MessageReader reader(kMaxBytes);
    const absl::Status status = reader.Read(Framed(flag, "hello"));
    EXPECT_EQ(status, absl::InternalError(absl::StrCat("compressed flag of a message is ", static_cast<uint8_t>(flag),
                                                       ", not 0 or 1")));
  }
}

TEST(MessageReaderTest, OneMessageOnly) {
  MessageReader reader(kMaxBytes, 1);
  ASSERT_TRUE(reader.Read(FrameMessage("one")).ok());
  ASSERT_TRUE(reader.Read("").ok());
  EXPECT_EQ(reader.Read(std::string(1, '\0')), absl::UnimplementedError("more than 1 message came"));
  EXPECT_THAT(TakeAll(reader), ElementsAre("one"));
}

// A delayed response arrives like this: the prefix and a spare byte, then the rest with its grant.
TEST(MessageReaderTest, ARestThatComesAtOnceTakesNoMoreMemoryThanTheMessage) {
  MessageReader reader(64 << 20);
  const std::string framed = FrameMessage(std::string(10'000, 'x'));
  ASSERT_TRUE(reader.Read(framed.substr(0, 6)).ok());
  ASSERT_TRUE(reader.Read(framed.substr(6)).ok());
  WireMessage message;
  ASSERT_TRUE(reader.TakeMessage(message));
  EXPECT_EQ(message.bytes.capacity(), 10'000u);
}

TEST(MessageReaderTest, ALargeMessageInManyPiecesTakesAtMostTwiceItsSize) {
  MessageReader reader(64 << 20);
  WireMessage message;
  const std::string sent(10 << 20, 'x');
  const std::string framed = FrameMessage(sent);
  for (size_t at = 0; at < framed.size(); at += 16384) ASSERT_TRUE(reader.Read(framed.substr(at, 16384)).ok());
  ASSERT_TRUE(reader.TakeMessage(message));
  EXPECT_EQ(message.bytes, sent);
  EXPECT_LE(message.bytes.capacity(), 2 * sent.size());
}

}  // namespace
}  // namespace sluice
