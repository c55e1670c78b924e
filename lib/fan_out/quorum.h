#pragma once

#include <cassert>
#include <cstddef>
#include <optional>
#include <vector>

namespace sluice {

// Counts the asks of a fan-out that have a response or have failed, and decides whether they are enough. It also keeps
// the asks whose response waits because the quorum is full. There is one for each fan-out. Not thread-safe.
class Quorum {
 public:
  // Without `success_quorum`, every ask must have a response or have failed.
  Quorum(size_t asks, std::optional<size_t> success_quorum, size_t fail_limit)
      : asks_(asks), success_quorum_(success_quorum), fail_limit_(fail_limit) {
    assert(asks_ == 0 || success_quorum_.value_or(0) <= asks_);
  }

  void OnVerdictBegins() { ++under_verdict_; }  // messages of an ask are handed over
  void OnVerdictEnds() { --under_verdict_; }
  void OnResponse() { ++responses_; }
  void OnFailure() { ++failures_; }

  // The quorum has responded, or every ask is settled.
  bool Reached() const {
    return (success_quorum_.has_value() && responses_ >= *success_quorum_) || responses_ + failures_ == asks_;
  }
  // More asks have failed than fail_limit allows, or too few are left for the quorum.
  bool Unreachable() const { return failures_ > fail_limit_ || asks_ - failures_ < success_quorum_.value_or(0); }
  // If all verdicts are OK, the quorum needs no further response.
  bool Full() const { return success_quorum_.has_value() && responses_ + under_verdict_ >= *success_quorum_; }
  // Verdicts alone may end the fan-out, without a further response.
  bool AwaitsVerdicts() const {
    const size_t in = responses_ + under_verdict_;
    return in + failures_ >= asks_ || in >= success_quorum_.value_or(asks_);
  }

  // Asks that wait until the quorum is not full, in order.
  void Wait(size_t ask) { waiting_.push_back(ask); }
  // Removes the first of them, and returns it. None while the quorum is full.
  std::optional<size_t> TakeWaiting() {
    if (next_waiting_ == waiting_.size() || Full()) return std::nullopt;
    return waiting_[next_waiting_++];
  }

 private:
  const size_t asks_;
  const std::optional<size_t> success_quorum_;
  const size_t fail_limit_;
  size_t under_verdict_ = 0;  // asks
  size_t responses_ = 0;
  size_t failures_ = 0;
  // A queue that only grows, by at most one entry for each refusal, with the index of its first entry.
  std::vector<size_t> waiting_;
  size_t next_waiting_ = 0;
};

}  // namespace sluice
