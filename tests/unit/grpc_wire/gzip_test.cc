#include "lib/grpc_wire/gzip.h"

#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/grpc_wire/test_messages.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

TEST(GzipTest, GivesWhatCanBeDecompressed) {
  std::string bytes;
  for (int i = 0; i < 100'000; ++i) bytes += std::to_string(i);
  const std::optional<std::string> compressed = Gzip(bytes);
  ASSERT_TRUE(compressed.has_value());
  EXPECT_LT(compressed->size(), bytes.size());
  EXPECT_EQ(Gunzip(*compressed, 1 << 20).value(), bytes);
}

TEST(GzipTest, GivesNothingThatIsNotSmaller) {
  EXPECT_EQ(Gzip(""), std::nullopt);
  EXPECT_EQ(Gzip("x"), std::nullopt);
  const std::string compressed = Gzip(std::string(10'000, 'x')).value();
  EXPECT_EQ(Gzip(compressed), std::nullopt);
  // Compare the smallest run that compression shrinks with the run before it.
  size_t size = 1;
  while (!Gzip(std::string(size, 'x')).has_value()) ++size;
  EXPECT_LT(Gzip(std::string(size, 'x'))->size(), size);
  EXPECT_GE(GzipOf(std::string(size - 1, 'x')).size(), size - 1);
}

TEST(GunzipTest, GivesBackWhatWasCompressed) {
  for (const std::string& bytes : {std::string(), std::string("hello"), std::string(1 << 20, 'x')}) {
    const auto out = Gunzip(GzipOf(bytes), 1 << 20);
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ(*out, bytes);
  }
}

TEST(GunzipTest, TakesAMessageOfExactlyTheBound) {
  const std::string bytes(100'000, 'x');
  EXPECT_EQ(Gunzip(GzipOf(bytes), 100'000).value(), bytes);
  const auto out = Gunzip(GzipOf(bytes), 99'999);
  EXPECT_EQ(out.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(out.status().message()), HasSubstr("99999 bytes"));
}

TEST(GunzipTest, AnEmptyMessageFitsABoundOfZero) {
  EXPECT_EQ(Gunzip(GzipOf(""), 0).value(), "");
  EXPECT_EQ(Gunzip(GzipOf("x"), 0).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(GunzipTest, ABombEndsAtTheBound) {
  const std::string bomb = GzipOf(std::string(64 << 20, '\0'));
  ASSERT_LT(bomb.size(), 100'000u);
  EXPECT_EQ(Gunzip(bomb, 1 << 20).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(GunzipTest, SeveralMembersAreOneMessage) {
  EXPECT_EQ(Gunzip(GzipOf("one ") + GzipOf("") + GzipOf("two"), 100).value(), "one two");
}

TEST(GunzipTest, ABombOfManyMembersEndsAtTheBound) {
  std::string bomb;
  for (int i = 0; i < 100; ++i) bomb += GzipOf(std::string(1000, 'x'));
  EXPECT_EQ(Gunzip(bomb, 50'000).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Gunzip(bomb, 100'000).value(), std::string(100'000, 'x'));
}

TEST(GunzipTest, EveryCutIsAnError) {
  const std::string compressed = GzipOf("some bytes that are here to be cut off");
  for (size_t size = 0; size < compressed.size(); ++size) {
    EXPECT_EQ(Gunzip(compressed.substr(0, size), 1000).status().code(), absl::StatusCode::kInternal) << size;
  }
}

TEST(GunzipTest, WhatIsNotGzipIsAnError) {
  EXPECT_EQ(Gunzip("not gzip at all", 1000).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Gunzip(GzipOf("hello") + "rest", 1000).status().code(), absl::StatusCode::kInternal);
  std::string wrong_checksum = GzipOf("hello");
  wrong_checksum[wrong_checksum.size() - 6] ^= 1;
  EXPECT_EQ(Gunzip(wrong_checksum, 1000).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace sluice
