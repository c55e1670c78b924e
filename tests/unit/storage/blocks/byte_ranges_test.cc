#include "lib/storage/blocks/byte_ranges.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(ByteRangesTest, WhatIsInBoth) {
  EXPECT_EQ(Intersect({{0, 10}}, {}), ByteRanges());
  EXPECT_EQ(Intersect({{0, 10}}, {{10, 20}}), ByteRanges());
  EXPECT_EQ(Intersect({{0, 10}, {20, 30}}, {{5, 25}}), ByteRanges({{5, 10}, {20, 25}}));
  EXPECT_EQ(Intersect({{5, 25}}, {{0, 10}, {20, 30}}), ByteRanges({{5, 10}, {20, 25}}));
  EXPECT_EQ(Intersect({{0, 4}, {6, 9}}, {{0, 4}, {6, 9}}), ByteRanges({{0, 4}, {6, 9}}));
}

TEST(ByteRangesTest, WhatIsInNoHole) {
  EXPECT_EQ(Without({10, 20}, {}), ByteRanges({{10, 20}}));
  EXPECT_EQ(Without({10, 20}, {{10, 20}}), ByteRanges());
  EXPECT_EQ(Without({10, 20}, {{10, 12}, {14, 15}, {19, 20}}), ByteRanges({{12, 14}, {15, 19}}));
}

}  // namespace
}  // namespace sluice
