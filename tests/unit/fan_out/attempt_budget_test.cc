#include "lib/fan_out/attempt_budget.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

int64_t SpendAll(AttemptBudget& budget) {
  int64_t tokens = 0;
  while (budget.Spend()) ++tokens;
  return tokens;
}

TEST(AttemptBudgetTest, HasAFewTokensToBeginWith) {
  AttemptBudget budget;
  EXPECT_EQ(SpendAll(budget), AttemptBudget::kFirst);
  EXPECT_FALSE(budget.Spend());
}

TEST(AttemptBudgetTest, TenTenthsAreOneToken) {
  AttemptBudget budget;
  SpendAll(budget);
  for (int i = 0; i < 9; ++i) budget.Earn(0.1);
  EXPECT_FALSE(budget.Spend());
  budget.Earn(0.1);
  EXPECT_TRUE(budget.Spend());
  EXPECT_FALSE(budget.Spend());
}

TEST(AttemptBudgetTest, EarningNothingGivesNothing) {
  AttemptBudget budget;
  SpendAll(budget);
  budget.Earn(0);
  EXPECT_FALSE(budget.Spend());
}

TEST(AttemptBudgetTest, SavesUpToABound) {
  AttemptBudget budget;
  for (int i = 0; i < 1000; ++i) budget.Earn(1e9);
  EXPECT_EQ(SpendAll(budget), AttemptBudget::kMost);
}

}  // namespace
}  // namespace sluice
