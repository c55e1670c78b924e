#pragma once

#include <cstdint>

namespace sluice {

// Tokens for retries or hedges. They keep failures from multiplying the load: each ask earns a part of a token, and
// each retry or hedge spends a whole token. A FanOut has one budget for its retries and one for its hedges, shared by
// all its fan-outs. Not thread-safe.
//
// The caller of FanOutLogic earns tokens before it starts a fan-out, because it has the ratio and the number of asks.
// FanOutLogic spends them.
class AttemptBudget {
 public:
  static constexpr int64_t kFirst = 8;   // tokens at the start
  static constexpr int64_t kMost = 256;  // maximum number of tokens that the budget can save up

  void Earn(double tokens);  // at least 0; tokens above kMost are lost
  bool Spend();              // returns false if less than a whole token is left

 private:
  // Counts whole millionths of a token: as a double, ten tenths add up to less than one.
  static constexpr int64_t kToken = 1'000'000;
  int64_t millionths_ = kFirst * kToken;
};

}  // namespace sluice
