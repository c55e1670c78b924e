#include "lib/storage/stripe/crc32c.h"

#include <string>

#include "gtest/gtest.h"

namespace sluice {
namespace {

std::string Ascending() {
  std::string bytes;
  for (char c = 0; c < 32; ++c) bytes.push_back(c);
  return bytes;
}

// RFC 3720, appendix B.4. The RFC prints the bytes in the order of transmission; these are the numbers.
TEST(Crc32cTest, MatchesTheVectorsOfRfc3720) {
  const std::string ascending = Ascending();
  EXPECT_EQ(Crc32c(std::string(32, '\x00')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(Crc32c(std::string(ascending.rbegin(), ascending.rend())), 0x113fdb5cu);
}

TEST(Crc32cTest, MatchesTheCheckValueOfTheCatalogue) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
}

TEST(Crc32cTest, OfNothingIsTheInitialValue) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("", 0x12345678), 0x12345678u);
}

TEST(Crc32cTest, ExtendsAtEverySplit) {
  const std::string bytes = Ascending();
  for (size_t split = 0; split <= bytes.size(); ++split)
    EXPECT_EQ(Crc32c(bytes.substr(split), Crc32c(bytes.substr(0, split))), Crc32c(bytes)) << split;
}

}  // namespace
}  // namespace sluice
