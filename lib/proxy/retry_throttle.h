#pragma once

#include <algorithm>

namespace sluice {

// Tokens that bound the retries of calls to one name, by gRFC A6 ("retry throttling"): a failed attempt takes a token,
// and a successful one adds a part of a token. While half of the tokens or fewer are left, nothing is retried. There is
// one for each target of a proxy. Not thread-safe.
class RetryThrottle {
 public:
  struct Options {
    double max_tokens = 10;    // above 0
    double token_ratio = 0.1;  // above 0
  };

  // Call them with the options in force.
  void OnFailed(const Options& options) { taken_ = std::min(taken_ + 1, options.max_tokens); }
  void OnOk(const Options& options) {
    taken_ = std::max(std::min(taken_, options.max_tokens) - options.token_ratio, 0.0);
  }
  bool MayRetry(const Options& options) const { return options.max_tokens - taken_ > options.max_tokens / 2; }

 private:
  double taken_ = 0;
};

}  // namespace sluice
