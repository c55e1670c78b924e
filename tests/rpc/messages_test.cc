#include "lib/rpc/messages.h"

#include <string>

#include "sluice/v1/sru_service.pb.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(MessagesTest, ParseReadsWhatSerializeWrote) {
  for (const size_t bytes : {0, 1, 100, 1 << 20}) {
    v1::ReadSruResponse sent;
    sent.set_data(std::string(bytes, 'x'));
    grpc::ByteBuffer buffer = Serialize(sent);
    v1::ReadSruResponse received;
    ASSERT_TRUE(Parse(buffer, received).ok());
    EXPECT_EQ(received.data(), sent.data());
  }
}

TEST(MessagesTest, ParseReadsAMessageThatCameInPieces) {
  v1::ReadSruResponse sent;
  sent.set_data("in three pieces");
  const std::string bytes = sent.SerializeAsString();
  const grpc::Slice slices[] = {bytes.substr(0, 1), bytes.substr(1, 5), bytes.substr(6)};
  grpc::ByteBuffer buffer(slices, 3);
  v1::ReadSruResponse received;
  ASSERT_TRUE(Parse(buffer, received).ok());
  EXPECT_EQ(received.data(), sent.data());
}

TEST(MessagesTest, BytesThatAreNoMessageAreDataLoss) {
  for (const char* bytes : {"\x0a\x64!", "\x0a", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"}) {
    grpc::Slice slice(bytes);
    grpc::ByteBuffer buffer(&slice, 1);
    v1::ReadSruResponse received;
    EXPECT_TRUE(absl::IsDataLoss(Parse(buffer, received))) << bytes;
  }
}

TEST(MessagesTest, ABufferThatWasNeverFilledIsDataLoss) {
  grpc::ByteBuffer buffer;
  v1::ReadSruResponse received;
  EXPECT_TRUE(absl::IsDataLoss(Parse(buffer, received)));
}

}  // namespace
}  // namespace sluice
