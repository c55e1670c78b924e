#include "lib/http2/unsent_data.h"

#include <algorithm>
#include <string>

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(UnsentData, IsFirstInFirstOut) {
  UnsentData data;
  EXPECT_TRUE(data.empty());
  data.Append("abc");
  data.Append("def");
  EXPECT_EQ(data.size(), 6);
  EXPECT_EQ(data.Front(4), "abcd");
  data.Remove(4);
  EXPECT_EQ(data.Front(4), "ef");
  data.Append("");
  data.Append("ghi");
  EXPECT_EQ(data.Front(100), "efghi");
  data.Remove(5);
  EXPECT_TRUE(data.empty());
  EXPECT_EQ(data.Front(1), "");
}

TEST(UnsentData, KeepsItsOrderWhateverIsAppendedAndRemoved) {
  UnsentData data;
  std::string expected;
  char next = 0;
  for (size_t turn = 0; turn < 2000; ++turn) {
    std::string bytes(turn * 7 % 31, '\0');
    for (char& byte : bytes) byte = next++;
    expected += bytes;
    data.Append(bytes);
    const size_t removed = std::min<size_t>(turn * 13 % 29, expected.size());
    ASSERT_EQ(data.Front(removed), expected.substr(0, removed));
    data.Remove(removed);
    expected.erase(0, removed);
    ASSERT_EQ(data.size(), expected.size());
    ASSERT_EQ(data.Front(data.size()), expected);
  }
}

}  // namespace
}  // namespace sluice
