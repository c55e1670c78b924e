#include "lib/scheduling/breaches.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(BreachesTest, AConditionThatHoldsIsNoBreach) {
  Breaches breaches(Breaches::Response::kCount);
  EXPECT_TRUE(SLUICE_HOLDS(breaches, 1 + 1 == 2));
  EXPECT_EQ(breaches.Take(), std::nullopt);
}

TEST(BreachesTest, TakeReturnsTheFirstWithItsPlaceAndTheNumberOfAll) {
  Breaches breaches(Breaches::Response::kCount);
  const int line = __LINE__ + 1;
  EXPECT_FALSE(SLUICE_HOLDS(breaches, 1 + 1 == 3));
  EXPECT_FALSE(SLUICE_HOLDS(breaches, 1 + 1 == 4));
  const std::optional<InvariantBreach> breach = breaches.Take();
  ASSERT_TRUE(breach.has_value());
  EXPECT_EQ(breach->condition, "1 + 1 == 3");
  EXPECT_THAT(std::string(breach->file), ::testing::EndsWith("breaches_test.cc"));
  EXPECT_EQ(breach->line, line);
  EXPECT_EQ(breach->breaches, 2);
  EXPECT_EQ(breaches.Take(), std::nullopt);
}

TEST(BreachesTest, FilesOfTheLibraryAreRelativeToTheSources) {
  Breaches breaches(Breaches::Response::kCount);
  breaches.Add("x", "/home/lib/build/../lib/scheduling/live_calls.cc", 7);
  EXPECT_EQ(breaches.Take()->file, "lib/scheduling/live_calls.cc");
}

TEST(BreachesDeathTest, ADebugBuildEndsAtOnce) {
  Breaches breaches(Breaches::Response::kAbort);
  EXPECT_DEATH(SLUICE_HOLDS(breaches, 1 + 1 == 3), "breaches_test.cc:[0-9]+: invariant does not hold: 1 \\+ 1 == 3");
}

TEST(BreachesDeathTest, TheBuildDecidesUnlessTheOwnerDoes) {
  Breaches breaches;
#ifdef NDEBUG
  EXPECT_FALSE(SLUICE_HOLDS(breaches, 1 + 1 == 3));
  EXPECT_EQ(breaches.Take()->breaches, 1);
#else
  EXPECT_DEATH(SLUICE_HOLDS(breaches, 1 + 1 == 3), "invariant does not hold");
#endif
}

}  // namespace
}  // namespace sluice
