#include "lib/cli/units.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

template <class Parser>
void ExpectRefused(Parser parser, const std::vector<std::pair<std::string_view, const char*>>& table) {
  for (const auto& [text, why] : table) {
    const auto parsed = parser(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    const std::string message(parsed.status().message());
    EXPECT_THAT(message, HasSubstr("\"" + std::string(text) + "\""));
    EXPECT_THAT(message, HasSubstr(why));
  }
}

TEST(ParseByteSizeTest, TakesTheUnitsOfTc) {
  const std::vector<std::pair<std::string_view, int64_t>> table = {
      {"0", 0},          {"32000", 32000}, {"32000b", 32000}, {"32k", 32768},
      {"32kb", 32768},   {"32KB", 32768},  {"32KiB", 32768},  {"4MiB", 4 << 20},
      {"1GiB", 1 << 30}, {"1m", 1 << 20},  {"4mb", 4 << 20},  {"1g", 1 << 30},
      {"1gb", 1 << 30},  {"1.5kb", 1536},  {"0.5k", 512},     {"8388608gb", int64_t{1} << 53}};
  for (const auto& [text, bytes] : table) {
    const auto parsed = ParseByteSize(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(ParseByteSizeTest, RefusesWhatIsNoSize) {
  ExpectRefused(ParseByteSize, {{"", "is not a size"},
                                {"-1", "is not a size"},
                                {"+1", "is not a size"},
                                {" 1", "is not a size"},
                                {"1 kb", "is not a size"},
                                {"kb", "is not a size"},
                                {".", "is not a size"},
                                {"1.2.3", "is not a size"},
                                {"1e3", "is not a size"},
                                {"0x10", "is not a size"},
                                {"inf", "is not a size"},
                                {"nan", "is not a size"},
                                {"32kbit", "is not a size"},
                                {"1tb", "is not a size"},
                                {std::string_view("1\0", 2), "is not a size"},
                                {"0.3", "not a whole number of bytes"},
                                {"8388609gb", "2^53"},
                                {"99999999999999999999999999", "2^53"}});
}

TEST(ParseBitRateTest, TakesTheUnitsOfTc) {
  const std::vector<std::pair<std::string_view, double>> table = {
      {"1000", 1e3},      {"10bit", 10},   {"10kbit", 1e4},  {"100mbit", 1e8},    {"100Mbit", 1e8},      {"1gbit", 1e9},
      {"2.5gbit", 2.5e9}, {"1tbit", 1e12}, {"1kibit", 1024}, {"1mibit", 1048576}, {"1gibit", 1073741824}};
  for (const auto& [text, rate] : table) {
    const auto parsed = ParseBitRate(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_DOUBLE_EQ(*parsed, rate) << text;
  }
}

TEST(ParseBitRateTest, RefusesWhatIsNoRate) {
  ExpectRefused(ParseBitRate, {{"", "is not a rate"},
                               {"abc", "is not a rate"},
                               {"-1mbit", "is not a rate"},
                               {"100mb", "is not a rate"},
                               {"1e9", "is not a rate"},
                               {"inf", "is not a rate"},
                               {"0", "above 0"},
                               {"0gbit", "above 0"},
                               {"99999tbit", "2^53"}});
}

TEST(ParseBitRateTest, RefusesBytesPerSecondThatLookLikeBits) {
  ExpectRefused(ParseBitRate, {{"12mbps", "ambiguous"}, {"1Gbps", "ambiguous"}, {"1bps", "ambiguous"}});
}

TEST(ParseDurationTest, TakesDurationsWithAUnit) {
  const std::vector<std::pair<std::string_view, absl::Duration>> table = {
      {"100us", absl::Microseconds(100)}, {"1ms", absl::Milliseconds(1)}, {"1.5ms", absl::Microseconds(1500)},
      {"2s", absl::Seconds(2)},           {"1m", absl::Minutes(1)},       {"1m30s", absl::Seconds(90)},
      {"0", absl::ZeroDuration()}};
  for (const auto& [text, duration] : table) {
    const auto parsed = ParseDuration(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, duration) << text;
  }
}

TEST(ParseDurationTest, RefusesWhatIsNoFiniteDuration) {
  ExpectRefused(ParseDuration, {{"", "not a duration"},
                                {"10", "not a duration"},
                                {"10 ms", "not a duration"},
                                {"10msec", "not a duration"},
                                {"soon", "not a duration"},
                                {"-1ms", "negative"},
                                {"-inf", "negative"},
                                {"inf", "infinite"},
                                {"99999999999999999999h", "not a duration"}});
}

TEST(ParseBufferSizeTest, TakesBytesOrPackets) {
  const auto bytes = ParseBufferSize("32kb");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(bytes->bytes, 32768);
  EXPECT_EQ(bytes->packets, 0);
  for (const char* text : {"100p", "100P"}) {
    const auto packets = ParseBufferSize(text);
    ASSERT_TRUE(packets.ok()) << packets.status();
    EXPECT_EQ(packets->bytes, 0);
    EXPECT_EQ(packets->packets, 100);
  }
}

TEST(ParseBufferSizeTest, RefusesWhatIsNoBuffer) {
  ExpectRefused(ParseBufferSize, {{"0", "no buffer"},
                                  {"0p", "no buffer"},
                                  {"1.5p", "whole number of packets"},
                                  {"99999999999999999999p", "whole number of packets"},
                                  {"p", "packets, like 100p"},
                                  {"-5p", "packets, like 100p"},
                                  {"100pkt", "packets, like 100p"}});
}

TEST(FormatTest, ShowsThreeDigitsAndAUnit) {
  EXPECT_EQ(FormatByteSize(0), "0 B");
  EXPECT_EQ(FormatByteSize(1023), "1023 B");
  EXPECT_EQ(FormatByteSize(1024), "1 KiB");
  EXPECT_EQ(FormatByteSize(32768), "32 KiB");
  EXPECT_EQ(FormatByteSize(1500), "1.46 KiB");
  EXPECT_EQ(FormatByteSize(-1536), "-1.5 KiB");
  EXPECT_EQ(FormatByteSize(int64_t{1} << 53), "8 PiB");
  EXPECT_EQ(FormatBitRate(92.34e6), "92.3 Mbit/s");
  EXPECT_EQ(FormatBitRate(999.9e6), "1 Gbit/s");
  EXPECT_EQ(FormatBitRate(100), "100 bit/s");
  EXPECT_EQ(sluice::FormatDuration(absl::ZeroDuration()), "0 ns");
  EXPECT_EQ(sluice::FormatDuration(absl::Microseconds(1866)), "1.87 ms");
  EXPECT_EQ(sluice::FormatDuration(absl::Milliseconds(234)), "234 ms");
  EXPECT_EQ(sluice::FormatDuration(absl::Milliseconds(90500)), "1m30s");
}

TEST(ParseFieldTest, KeepsTheValueOfAnEmptyFieldAndNamesAWrongOne) {
  int64_t bytes = 7;
  EXPECT_TRUE(ParseField("schedule.budget", "", ParseByteSize, bytes).ok());
  EXPECT_EQ(bytes, 7);
  EXPECT_TRUE(ParseField("schedule.budget", "1k", ParseByteSize, bytes).ok());
  EXPECT_EQ(bytes, 1024);
  const absl::Status status = ParseField("schedule.budget", "much", ParseByteSize, bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("schedule.budget: \"much\" is not a size"));
  EXPECT_EQ(bytes, 1024);
}

}  // namespace
}  // namespace sluice
