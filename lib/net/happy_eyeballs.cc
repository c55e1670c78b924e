#include "lib/net/happy_eyeballs.h"

#include <utility>

#include "lib/net/worker_address.h"

namespace sluice {

std::vector<WorkerAddress> AlternateFamilies(std::vector<WorkerAddress> addresses) {
  std::vector<WorkerAddress> families[2];  // [0]: the family of the first address
  for (WorkerAddress& address : addresses) {
    const bool other = !families[0].empty() && IsIpv6(address) != IsIpv6(families[0].front());
    families[other ? 1 : 0].push_back(std::move(address));
  }
  addresses.clear();
  for (size_t i = 0; i < families[0].size() || i < families[1].size(); ++i) {
    for (auto& family : families) {
      if (i < family.size()) addresses.push_back(std::move(family[i]));
    }
  }
  return addresses;
}

HappyEyeballs::Actions HappyEyeballs::OnTimer(TimePoint now) {
  if (now < wake_) return {.wake = wake_};
  return TryNext(now);
}

HappyEyeballs::Actions HappyEyeballs::OnAttemptFailed(TimePoint now) {
  --under_way_;
  return TryNext(now);
}

HappyEyeballs::Actions HappyEyeballs::TryNext(TimePoint now) {
  wake_ = TimePoint::max();
  if (tried_ == addresses_) return {.failed = under_way_ == 0};
  const size_t attempt = tried_++;
  ++under_way_;
  if (tried_ < addresses_) wake_ = now + kAttemptDelay;
  return {.attempt = attempt, .wake = wake_};
}

}  // namespace sluice
