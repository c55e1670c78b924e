#include "lib/http2/idle_reset_filter.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Frame(char type, uint32_t stream, const std::string& payload) {
  std::string frame = {0, static_cast<char>(payload.size() >> 8), static_cast<char>(payload.size()), type, 0};
  for (const int shift : {24, 16, 8, 0}) frame.push_back(static_cast<char>(stream >> shift));
  return absl::StrCat(frame, payload);
}
std::string Headers(uint32_t stream) {
  return Frame(1, stream, "what HPACK makes of them");
}
std::string Reset(uint32_t stream) {
  return Frame(3, stream, std::string("\0\0\0\x08", 4));
}

std::string PassInSteps(const std::string& bytes, size_t step) {
  IdleResetFilter filter;
  std::string passed;
  for (size_t at = 0; at < bytes.size(); at += step) {
    absl::StrAppend(&passed, filter.Pass(absl::string_view(bytes).substr(at, step)));
  }
  return passed;
}

TEST(IdleResetFilterTest, TakesOutResetsOfStreamsThatWereNeverOpenedHoweverTheBytesAreCut) {
  const std::string settings = Frame(4, 0, "");
  const std::string data = Frame(0, 1, std::string(300, '\3'));
  const std::string bytes = absl::StrCat(kPreface, settings, Headers(1), Reset(3), data, Reset(5), Reset(7), Headers(9),
                                         Reset(9), Reset(3), Reset(11), settings);
  const std::string expected =
      absl::StrCat(kPreface, settings, Headers(1), data, Headers(9), Reset(9), Reset(3), settings);
  for (size_t step = 1; step <= bytes.size(); ++step) EXPECT_EQ(PassInSteps(bytes, step), expected) << step;
}

TEST(IdleResetFilterTest, PassesOnAResetThatIsNoFrameOfTheProtocol) {
  const std::string bytes = absl::StrCat(kPreface, Frame(3, 1, "too long"), Frame(3, 0, std::string(4, '\0')));
  EXPECT_EQ(PassInSteps(bytes, 7), bytes);
}

}  // namespace
}  // namespace sluice
