#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/status/status.h"

namespace sluice {

// Who was asked in one fan-out, who has answered, and whether that is enough: decisions as a function of plain values.
// One a fan-out. Not thread-safe.
//
// An ask is one request with the workers that can answer it, the first one first; an attempt is that request sent to
// one of them. The first attempt of an ask that delivers a message claims it; its rivals are to be cancelled.
class FanOutTally {
 public:
  struct Limits {
    size_t fail_limit = 0;
    std::optional<size_t> success_quorum;  // unset: all asks are waited for
  };
  enum class Outcome { kPending, kAnswered, kFailed };
  struct Attempt {
    size_t ask = 0;
    size_t worker = 0;
    bool hedge = false;
    bool ready = false;  // the answer only waits for us
    bool open = true;
  };
  // What is to be done about an attempt that has failed.
  enum class Next {
    kNothing,    // a rival is still under way, or nobody needs it any more
    kRetry,      // NextAttempt has a worker for it
    kAskFailed,  // no worker is left
  };

  FanOutTally(Limits limits, std::vector<std::vector<size_t>> workers_by_ask);

  // One more attempt at a pending ask, by the next of its workers: the first time the primary. Nothing when none is
  // left, or the ask is not pending. Attempts count from 0 in the order in which they are made.
  std::optional<size_t> NextAttempt(size_t ask, bool hedge);
  const Attempt& attempt(size_t attempt) const { return attempts_[attempt]; }
  size_t attempts() const { return attempts_.size(); }

  // Ignored where it has ended: a cancellation may overtake the news.
  void OnReady(size_t attempt);
  // Whether a rival may help an open attempt: the ask is pending, none of its attempts is ready, and a worker was not
  // asked yet.
  bool MayHedge(size_t attempt) const;

  // Whether a message of it would count: its ask is pending, and no rival has claimed that.
  bool Wanted(size_t attempt) const;
  // A message of it counts, or its end without any. False when it is not wanted.
  bool Claim(size_t attempt);
  bool Claimed(size_t attempt) const;
  std::vector<size_t> OpenRivals(size_t attempt) const;

  // An attempt has ended. What has claimed its ask cannot be replaced by another one.
  void OnAnswered(size_t attempt);
  Next OnFailed(size_t attempt);

  // It has ended, and what it would have meant does not matter any more.
  void OnDropped(size_t attempt);
  void GiveUp(size_t ask);  // no retry although there is a worker for one

  bool enough() const;  // answers for a quorum
  bool too_many_failures() const;
  bool complete() const { return answered_ + failed_ == asks_.size(); }

  size_t asked() const { return asks_.size(); }
  size_t answered() const { return answered_; }
  size_t failed() const { return failed_; }
  size_t retries() const { return retries_; }
  size_t hedges() const { return hedges_; }
  size_t hedges_won() const { return hedges_won_; }

 private:
  struct AskState {
    std::vector<size_t> workers;
    size_t next_worker = 0;
    size_t open_attempts = 0;
    size_t ready_attempts = 0;  // of those
    std::optional<size_t> winner;
    Outcome outcome = Outcome::kPending;
  };

  const Limits limits_;
  std::vector<AskState> asks_;
  std::vector<Attempt> attempts_;
  size_t answered_ = 0;
  size_t failed_ = 0;
  size_t retries_ = 0;
  size_t hedges_ = 0;
  size_t hedges_won_ = 0;
};

}  // namespace sluice
