#include "lib/fan_out/attempt_budget.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace sluice {

void AttemptBudget::Earn(double tokens) {
  assert(tokens >= 0);
  const auto earned = std::llround(std::min(tokens, static_cast<double>(kMost)) * kToken);
  millionths_ = std::min<int64_t>(millionths_ + earned, kMost * kToken);
}

bool AttemptBudget::Spend() {
  if (millionths_ < kToken) return false;
  millionths_ -= kToken;
  return true;
}

}  // namespace sluice
