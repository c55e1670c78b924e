#pragma once

#include <cstdint>

namespace sluice {

// Tokens for the requests beyond the first ones, so that trouble does not multiply the load: each ask earns a part of a
// token, and each retry (or hedge) spends a whole one. One for the retries and one for the hedges of a FanOut, shared
// by its fan-outs. Not thread-safe.
//
// The caller earns, before it starts a fan-out: only it knows the ratio and how many asks there are. FanOutLogic
// spends.
class AttemptBudget {
 public:
  static constexpr int64_t kFirst = 8;   // tokens before there is anything to take a share of
  static constexpr int64_t kMost = 256;  // tokens that a long quiet time can save up

  void Earn(double tokens);  // at least 0; what exceeds kMost is lost
  bool Spend();              // false: less than a whole token is left

 private:
  // Whole millionths of a token: as a double, ten tenths add up to less than one.
  static constexpr int64_t kToken = 1'000'000;
  int64_t millionths_ = kFirst * kToken;
};

}  // namespace sluice
