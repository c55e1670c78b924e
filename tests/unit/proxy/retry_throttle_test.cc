#include "lib/proxy/retry_throttle.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

// A config may lower the number of tokens at any time.
TEST(RetryThrottleTest, FewerTokensAreNotPaidBackOneByOne) {
  RetryThrottle throttle;
  for (int i = 0; i < 1000; ++i) throttle.OnFailed({.max_tokens = 1000});
  const RetryThrottle::Options few{.max_tokens = 10};
  EXPECT_FALSE(throttle.MayRetry(few));
  for (int i = 0; i < 51; ++i) throttle.OnOk(few);
  EXPECT_TRUE(throttle.MayRetry(few));
}

}  // namespace
}  // namespace sluice
