#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace sluice {

// Counts the asks of a fan-out that have a response or have failed, and decides whether they are enough. It also keeps
// the asks whose response waits because the quorum is full. There is one for each fan-out. Not thread-safe.
class Quorum {
 public:
  // Without `success_quorum`, every ask must have a response or have failed.
  Quorum(size_t asks, std::optional<size_t> success_quorum, size_t fail_limit);

  void OnVerdictBegins() { ++under_verdict_; }  // messages of an ask are handed over
  void OnVerdictEnds() { --under_verdict_; }
  void OnResponse() { ++responses_; }
  void OnFailure() { ++failures_; }

  bool Reached() const;      // or every ask is settled
  bool Unreachable() const;  // or more asks have failed than fail_limit
  bool Full() const;         // if the verdicts are OK, no further response is needed
  // Returns true if verdicts alone may end the fan-out, without a further response.
  bool AwaitsVerdicts() const;

  // Asks that wait until the quorum is not full, in order.
  void Wait(size_t ask) { waiting_.push_back(ask); }
  std::optional<size_t> TakeWaiting();  // none while the quorum is full

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
