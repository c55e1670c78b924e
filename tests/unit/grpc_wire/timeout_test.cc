#include "lib/grpc_wire/timeout.h"

#include <optional>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "tests/random_seed.h"

namespace sluice {
namespace {

TEST(FormatTimeoutTest, TakesTheFinestUnitThatEightDigitsAllow) {
  EXPECT_EQ(FormatTimeout(absl::Nanoseconds(1)), "1n");
  EXPECT_EQ(FormatTimeout(absl::Milliseconds(50)), "50000000n");
  EXPECT_EQ(FormatTimeout(absl::Nanoseconds(99'999'999)), "99999999n");
  EXPECT_EQ(FormatTimeout(absl::Milliseconds(100)), "100000u");
  EXPECT_EQ(FormatTimeout(absl::Seconds(1)), "1000000u");
  EXPECT_EQ(FormatTimeout(absl::Minutes(2)), "120000m");
  EXPECT_EQ(FormatTimeout(absl::Hours(48)), "172800S");
  EXPECT_EQ(FormatTimeout(absl::Hours(100'000)), "6000000M");
  EXPECT_EQ(FormatTimeout(absl::Hours(10'000'000)), "10000000H");
}

TEST(FormatTimeoutTest, RoundsUp) {
  EXPECT_EQ(FormatTimeout(absl::Nanoseconds(0.25)), "1n");
  EXPECT_EQ(FormatTimeout(absl::Nanoseconds(100'000'001)), "100001u");
  EXPECT_EQ(FormatTimeout(absl::Nanoseconds(99'999'999.5)), "100000u");
}

TEST(FormatTimeoutTest, NoTimeLeftIsTheShortest) {
  EXPECT_EQ(FormatTimeout(absl::ZeroDuration()), "1n");
  EXPECT_EQ(FormatTimeout(absl::Seconds(-3)), "1n");
  EXPECT_EQ(FormatTimeout(-absl::InfiniteDuration()), "1n");
}

TEST(FormatTimeoutTest, TooLongIsTheLongest) {
  EXPECT_EQ(FormatTimeout(absl::Hours(1'000'000'000)), "99999999H");
  EXPECT_EQ(FormatTimeout(absl::InfiniteDuration()), "99999999H");
}

TEST(ParseTimeoutTest, ReadsEveryUnit) {
  EXPECT_EQ(ParseTimeout("5n"), absl::Nanoseconds(5));
  EXPECT_EQ(ParseTimeout("5u"), absl::Microseconds(5));
  EXPECT_EQ(ParseTimeout("5m"), absl::Milliseconds(5));
  EXPECT_EQ(ParseTimeout("5S"), absl::Seconds(5));
  EXPECT_EQ(ParseTimeout("5M"), absl::Minutes(5));
  EXPECT_EQ(ParseTimeout("99999999H"), absl::Hours(99'999'999));
  EXPECT_EQ(ParseTimeout("0n"), absl::ZeroDuration());
}

TEST(ParseTimeoutTest, RefusesAllElse) {
  for (const char* text : {"", "S", "5", "5s", "5 S", "-5S", "+5S", "5.0S", "100000000n", "5nn", " 5n", "n5"}) {
    EXPECT_EQ(ParseTimeout(text), std::nullopt) << text;
  }
}

TEST(TimeoutTest, TheWorkerNeverGivesUpFirst) {
  const uint64_t seed = TakeRandomSeed().value;
  SCOPED_TRACE("replay with SLUICE_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 10'000; ++i) {
    const absl::Duration timeout = absl::Nanoseconds(static_cast<int64_t>(random() >> (1 + random() % 63)));
    const std::optional<absl::Duration> received = ParseTimeout(FormatTimeout(timeout));
    ASSERT_TRUE(received.has_value()) << timeout;
    EXPECT_GE(*received, timeout);
    EXPECT_LE(*received, timeout + timeout / 100'000 + absl::Nanoseconds(1));
  }
}

}  // namespace
}  // namespace sluice
