#include "lib/grpc_wire/metadata.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const Metadata& metadata) {
  const absl::Status status = ValidateMetadata(metadata);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(ValidateMetadataTest, TakesTextAndBytes) {
  const absl::Status status = ValidateMetadata({{"x-user_1.a", "some text ~!"},
                                                {"empty", ""},
                                                {"authorization", "Bearer abc"},
                                                {"trace-bin", std::string("\0\xff\r\n", 4)},
                                                {"x-user_1.a", "again"}});
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ValidateMetadataTest, RefusesKeysThatHttp2CannotCarry) {
  EXPECT_THAT(ErrorOf({{"", "x"}}), HasSubstr("empty"));
  for (const char* key : {"Upper", "with space", ":path", "new\nline", "\xc3\xa9", "semi;colon"}) {
    EXPECT_THAT(ErrorOf({{key, "x"}}), HasSubstr("other characters")) << key;
  }
  EXPECT_THAT(ErrorOf({{"new\nline", "x"}}), HasSubstr("\"new?line\""));
}

TEST(ValidateMetadataTest, RefusesKeysOfTheProtocol) {
  for (const char* key :
       {"grpc-timeout", "grpc-status", "grpc-anything", "grpc-trace-bin", "te", "content-type", "user-agent",
        "content-length", "host", "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}) {
    EXPECT_THAT(ErrorOf({{"good", "x"}, {key, "x"}}), HasSubstr(absl::StrCat("\"", key, "\" is reserved")));
  }
}

TEST(ValidateMetadataTest, RefusesTextThatIsNotPrintable) {
  for (const char* value : {"a\r\nb", "\t", "\x7f", "\xc3\xa9"}) {
    EXPECT_THAT(ErrorOf({{"x-key", value}}), HasSubstr("\"x-key\" has bytes that are not printable")) << value;
  }
  EXPECT_THAT(ErrorOf({{"x-key", std::string("\0", 1)}}), HasSubstr("not printable"));
  for (const char* value : {" a", "a ", " "}) {
    EXPECT_THAT(ErrorOf({{"x-key", value}}), HasSubstr("begins or ends with a space")) << value;
  }
}

TEST(ValidateMetadataTest, NamesTheBoundThatIsExceeded) {
  const std::string key = "key";
  const size_t room = kMaxMetadataBytes - 32 - key.size();
  EXPECT_TRUE(ValidateMetadata({{key, std::string(room, 'x')}}).ok());
  EXPECT_THAT(ErrorOf({{key, std::string(room + 1, 'x')}}), HasSubstr("8193 bytes as a header list; at most 8192"));
}

TEST(ValidateMetadataTest, CountsBytesAsBase64) {
  const std::string key = "a-bin";
  // 6116 bytes have 8155 bytes in base64, which fit with the name and 32. One more byte makes 8156.
  ASSERT_EQ(kMaxMetadataBytes - 32 - key.size(), 8155u);
  EXPECT_TRUE(ValidateMetadata({{key, std::string(6116, '\0')}}).ok());
  EXPECT_THAT(ErrorOf({{key, std::string(6117, '\0')}}), HasSubstr("8193 bytes"));
}

}  // namespace
}  // namespace sluice
