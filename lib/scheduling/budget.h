#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>

#include "sluice/schedule.h"

#include "lib/scheduling/schedule_events.h"

namespace sluice {

// The time after which all bytes of an aborted call have arrived: a round trip, and the time in which a full buffer, or
// a larger budget, drains.
std::chrono::nanoseconds DrainTime(const LinkProfile& profile, int64_t budget_bytes = 0);

// The bytes of the port buffer that responses in flight may take, and those that they take. There is one for each
// schedule. Not thread-safe.
class Budget {
 public:
  explicit Budget(const ScheduleOptions& options);

  // Whether `bytes` fit beside what is in flight. Bytes of slow workers take a third of the budget at most, or a
  // packet: what they have outstanding beyond that is not on the wire, and comes slowly.
  bool HasRoom(int64_t bytes) const { return bytes <= bytes_ - in_flight_bytes_ + UncountedBytes(); }
  // Whether nothing is in flight except early bytes, handshakes, and bytes of slow workers. All other bytes come, stall
  // or drain in time. Early ones may not; as soon as handshakes with dead hosts have stalled, the next ones begin; and
  // slow workers always have bytes outstanding, of which few are on the wire.
  bool idle() const { return in_flight_bytes_ == early_bytes_ + handshake_bytes_ + slow_bytes_; }
  // Whether `bytes` may go because nothing else is in flight. `beside_bytes` may come at any moment; they have to fit
  // only if other processes have the rest of the link.
  bool HasRoomAlone(int64_t bytes, int64_t beside_bytes = 0) const {
    return idle() && (may_exceed_ || HasRoom(bytes + beside_bytes));
  }

  // Charges a cost, of which early bytes are a part; a negative cost releases. Charges may exceed the budget, and
  // nothing has room then until they have drained.
  void Charge(int64_t cost_bytes, int64_t early_bytes) {
    in_flight_bytes_ += cost_bytes;
    early_bytes_ += early_bytes;
  }

  // Parts of what was charged.
  void ChargeSlow(int64_t slow_bytes) { slow_bytes_ += slow_bytes; }
  void ChargeHandshake(int64_t handshake_bytes) { handshake_bytes_ += handshake_bytes; }

  // The bytes of an aborted call may still arrive: they are charged for DrainTime.
  void DrainAborted(TimePoint now, int64_t cost_bytes);
  void Drain(TimePoint now);
  TimePoint next_drain() const { return draining_.empty() ? TimePoint::max() : draining_.front().until; }

  void Set(int64_t bytes);  // charges above the new budget only drain
  void SetProfile(const LinkProfile& profile);
  void Lend(const BudgetLease& lease);
  void EndLease(TimePoint now);  // does nothing before its end
  int64_t bytes() const { return bytes_; }
  int64_t bytes_at(TimePoint now) const { return now < until_ ? bytes_ : 0; }
  int64_t link_bytes() const { return link_bytes_; }
  int64_t plan_bytes() const { return plan_bytes_; }
  int64_t in_flight_bytes() const { return in_flight_bytes_; }
  int64_t early_bytes() const { return early_bytes_; }
  int64_t slow_bytes() const { return slow_bytes_; }
  int64_t handshake_bytes() const { return handshake_bytes_; }
  int64_t UncountedBytes() const { return std::max<int64_t>(slow_bytes_ - std::max(bytes_ / 3, packet_bytes_), 0); }
  bool limited() const { return limited_; }

 private:
  struct Draining {
    TimePoint until;
    int64_t cost_bytes;
  };

  const bool limited_;  // false: unscheduled
  int64_t bytes_;
  int64_t link_bytes_;  // the whole budget, of which `bytes_` is a part
  int64_t plan_bytes_;  // as in BudgetLease, like the next two
  bool may_exceed_ = true;
  TimePoint until_ = TimePoint::max();
  LinkProfile profile_;
  int64_t in_flight_bytes_ = 0;  // with draining_
  int64_t early_bytes_ = 0;      // the early part of them
  int64_t slow_bytes_ = 0;       // of them, of slow workers
  int64_t handshake_bytes_ = 0;  // of them, of handshakes
  int64_t packet_bytes_ = 0;     // cost of a full packet
  // In the order of the aborts, which is that of time, since all drain equally long. After a change of the profile one
  // may wait for the one before it.
  std::deque<Draining> draining_;
};

}  // namespace sluice
