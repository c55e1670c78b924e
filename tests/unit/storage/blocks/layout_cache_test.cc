#include "lib/storage/blocks/layout_cache.h"

#include <memory>

#include "gtest/gtest.h"

namespace sluice {
namespace {

std::shared_ptr<const StripeLayout> LayoutOf(int srus) {
  v1::Manifest manifest;
  manifest.set_sru_bytes(10);
  manifest.set_workers(2);
  manifest.set_replicas(1);
  manifest.set_file_bytes(static_cast<uint64_t>(srus) * 10);
  manifest.mutable_sru_crc32c()->Resize(srus, 0);
  return std::make_shared<const StripeLayout>(StripeLayout::Create(manifest).value());
}

TEST(LayoutCacheTest, FindsWhatWasKeptUntilItIsForgotten) {
  LayoutCache cache(1 << 20);
  const auto layout = LayoutOf(5);
  EXPECT_EQ(cache.Find("a"), nullptr);
  cache.Keep("a", layout);
  EXPECT_EQ(cache.Find("a"), layout);
  EXPECT_EQ(cache.Find("b"), nullptr);
  cache.Forget("a");
  cache.Forget("a");
  EXPECT_EQ(cache.Find("a"), nullptr);
  EXPECT_EQ(cache.used_bytes(), 0u);
}

TEST(LayoutCacheTest, TheOneThatWasUsedLeastRecentlyMakesRoom) {
  LayoutCache cache(100'000);
  for (const char* file : {"a", "b", "c"}) cache.Keep(file, LayoutOf(8000));  // each has 32,000 bytes of checksums
  EXPECT_NE(cache.Find("a"), nullptr);
  cache.Keep("d", LayoutOf(8000));
  EXPECT_EQ(cache.Find("b"), nullptr);
  for (const char* file : {"a", "c", "d"}) EXPECT_NE(cache.Find(file), nullptr) << file;
  EXPECT_LE(cache.used_bytes(), 100'000u);
}

TEST(LayoutCacheTest, AnotherLayoutOfAFileTakesThePlaceOfTheOneBefore) {
  LayoutCache cache(100'000);
  cache.Keep("a", LayoutOf(8000));
  const uint64_t bytes = cache.used_bytes();
  const auto other = LayoutOf(8000);
  cache.Keep("a", other);
  EXPECT_EQ(cache.Find("a"), other);
  EXPECT_EQ(cache.used_bytes(), bytes);
}

TEST(LayoutCacheTest, OneThatIsLargerThanAllOfItIsKeptAlone) {
  LayoutCache cache(10'000);
  cache.Keep("small", LayoutOf(5));
  cache.Keep("large", LayoutOf(8000));
  EXPECT_NE(cache.Find("large"), nullptr);
  EXPECT_EQ(cache.Find("small"), nullptr);
  cache.Keep("small", LayoutOf(5));
  EXPECT_EQ(cache.Find("large"), nullptr);
}

}  // namespace
}  // namespace sluice
