#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

#include "sluice/link_schedule.h"

namespace sluice {

// What an aborted call had on the way has arrived after so long: a round trip and the time that a full buffer takes, or
// all of a budget that is larger.
std::chrono::nanoseconds DrainTime(const LinkProfile& profile, int64_t budget_bytes = 0);

// The bytes of the port buffer that answers in flight may take, and what they take. One a schedule, not thread-safe.
class Budget {
 public:
  explicit Budget(const LinkSchedule::Options& options);

  // Beside what is in flight.
  bool HasRoom(int64_t bytes) const { return bytes <= bytes_ - in_flight_bytes_; }
  // Nothing is in flight that comes, stalls or drains by itself; early bytes may do neither.
  bool idle() const { return in_flight_bytes_ == early_bytes_; }
  // Where nothing else is in flight, but what may come at any moment: that has to fit only where the rest is others'.
  bool HasRoomAlone(int64_t bytes, int64_t beside_bytes = 0) const {
    return idle() && (may_exceed_ || HasRoom(bytes + beside_bytes));
  }

  // Above the budget: nothing has room until that has drained. Less than 0 releases. Early bytes are a part of the
  // cost.
  void Charge(int64_t cost_bytes, int64_t early_bytes) {
    in_flight_bytes_ += cost_bytes;
    early_bytes_ += early_bytes;
  }

  // What an aborted call had on the way may still arrive: its charge stays for DrainTime, and is early no more.
  void ReleaseAborted(TimePoint now, int64_t cost_bytes, int64_t early_bytes);
  void Drain(TimePoint now);
  TimePoint next_drain() const { return draining_.empty() ? TimePoint::max() : draining_.front().until; }

  void Set(int64_t bytes);  // charged more than the new budget: only drains
  void SetProfile(const LinkProfile& profile);
  void Lend(const BudgetLease& lease);
  void EndLease(TimePoint now);  // where its time has come
  int64_t bytes() const { return bytes_; }
  int64_t bytes_at(TimePoint now) const { return now < until_ ? bytes_ : 0; }
  int64_t link_bytes() const { return link_bytes_; }
  int64_t plan_bytes() const { return plan_bytes_; }
  int64_t in_flight_bytes() const { return in_flight_bytes_; }
  int64_t early_bytes() const { return early_bytes_; }
  bool limited() const { return limited_; }

 private:
  struct Draining {
    TimePoint until;
    int64_t cost_bytes;
  };

  const bool limited_;         // false: unscheduled
  const int64_t given_bytes_;  // 0: that of the profile
  int64_t bytes_;
  int64_t link_bytes_;  // that `bytes_` is a part of
  int64_t plan_bytes_;  // as BudgetLease, like the next two
  bool may_exceed_ = true;
  TimePoint until_ = TimePoint::max();
  std::chrono::nanoseconds drain_time_;
  int64_t in_flight_bytes_ = 0;  // draining_ included
  int64_t early_bytes_ = 0;      // of that: granted before they were ready
  // In the order of the aborts. By time, too, since every one drains for as long; after a change of the profile one may
  // wait for the one before it.
  std::deque<Draining> draining_;
};

}  // namespace sluice
