#include "lib/fan_out/quorum.h"

#include <cassert>

namespace sluice {

Quorum::Quorum(size_t asks, std::optional<size_t> success_quorum, size_t fail_limit)
    : asks_(asks), success_quorum_(success_quorum), fail_limit_(fail_limit) {
  assert(asks_ == 0 || success_quorum_.value_or(0) <= asks_);
}

bool Quorum::Reached() const {
  if (success_quorum_.has_value() && responses_ >= *success_quorum_) return true;
  return responses_ + failures_ == asks_;
}

bool Quorum::Unreachable() const {
  return failures_ > fail_limit_ || asks_ - failures_ < success_quorum_.value_or(0);
}

bool Quorum::Full() const {
  return success_quorum_.has_value() && responses_ + under_verdict_ >= *success_quorum_;
}

bool Quorum::AwaitsVerdicts() const {
  const size_t in = responses_ + under_verdict_;
  return in + failures_ >= asks_ || in >= success_quorum_.value_or(asks_);
}

std::optional<size_t> Quorum::TakeWaiting() {
  if (next_waiting_ == waiting_.size() || Full()) return std::nullopt;
  return waiting_[next_waiting_++];
}

}  // namespace sluice
