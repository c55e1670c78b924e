#include "lib/grpc_wire/percent_encoding.h"

#include <string>

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(PercentEncodingTest, LeavesPrintableAsciiAsItIs) {
  EXPECT_EQ(PercentEncode("no such key: ~x"), "no such key: ~x");
  EXPECT_EQ(PercentDecode("no such key: ~x"), "no such key: ~x");
}

TEST(PercentEncodingTest, EncodesAllElse) {
  EXPECT_EQ(PercentEncode("50%"), "50%25");
  EXPECT_EQ(PercentEncode("a\r\nb\t"), "a%0D%0Ab%09");
  EXPECT_EQ(PercentEncode("\xc3\xa9\x7f"), "%C3%A9%7F");
}

TEST(PercentEncodingTest, DecodesEitherCaseOfDigits) {
  EXPECT_EQ(PercentDecode("%c3%A9"), "\xc3\xa9");
  EXPECT_EQ(PercentDecode("%00"), std::string(1, '\0'));
}

TEST(PercentEncodingTest, BrokenEncodingsStay) {
  EXPECT_EQ(PercentDecode("100%"), "100%");
  EXPECT_EQ(PercentDecode("%2"), "%2");
  EXPECT_EQ(PercentDecode("%zz%25"), "%zz%");
  EXPECT_EQ(PercentDecode("%%41"), "%A");
  EXPECT_EQ(PercentDecode("%+1%-1% 1%0x41"), "%+1%-1% 1%0x41");
}

TEST(PercentEncodingTest, AnyBytesComeBack) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  const std::string text = PercentEncode(bytes);
  for (const char c : text) EXPECT_TRUE(c >= 0x20 && c <= 0x7e);
  EXPECT_EQ(PercentDecode(text), bytes);
}

}  // namespace
}  // namespace sluice
