#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "sluice/schedule.h"

#include "lib/scheduling/pacer.h"
#include "lib/scheduling/schedule_events.h"

namespace sluice {

// Returns the time after which all bytes of an aborted call have arrived: a round trip and the drain time. The drain
// time is the drain time of a full buffer, or of the budget if that is larger.
std::chrono::nanoseconds DrainTime(const LinkProfile& profile, int64_t budget_bytes = 0);

// How many bytes of the port buffer the responses in flight may take, and how many they take now. There is one for each
// schedule. Not thread-safe.
class Budget {
 public:
  explicit Budget(const ScheduleOptions& options);

  // Returns whether `bytes` fit in addition to the bytes in flight, and to the bytes on a paced path. Bytes of slow
  // workers count as at most a third of the budget, or as one packet. The rest of their outstanding bytes is not on the
  // wire, and arrives slowly. At most three tenths of a budget are not counted so.
  bool HasRoom(int64_t bytes) const { return bytes <= room_bytes() - in_flight_bytes_; }
  int64_t room_bytes() const { return bytes_ + pacer_.pipe_bytes() + UncountedBytes(); }  // for all bytes in flight
  // Returns whether nothing is in flight except early bytes, handshakes, and bytes of slow workers. All other bytes
  // arrive, stall or drain in time. Early bytes may not. Handshakes with dead hosts follow each other: when some have
  // stalled, the next ones begin. Slow workers always have outstanding bytes, few of which are on the wire.
  bool idle() const { return in_flight_bytes_ == early_bytes_ + handshake_bytes_ + slow_bytes_; }
  // Returns whether one grant may exceed the budget while nothing else is in flight. A lease may forbid it.
  bool may_exceed() const { return may_exceed_; }
  // Returns whether `bytes` may go because nothing else is in flight. `beside_bytes` may arrive at any moment. They
  // must fit, too, but only if other processes have the rest of the link.
  bool HasRoomAlone(int64_t bytes, int64_t beside_bytes = 0) const {
    return idle() && (may_exceed_ || HasRoom(bytes + beside_bytes));
  }

  // Charges a cost, which includes `early_bytes`; a negative cost releases. Charges may exceed the budget; then nothing
  // has room until they have drained.
  void Charge(int64_t cost_bytes, int64_t early_bytes) {
    in_flight_bytes_ += cost_bytes;
    early_bytes_ += early_bytes;
  }

  // Charge parts of the cost that was charged.
  void ChargeSlow(int64_t slow_bytes) { slow_bytes_ += slow_bytes; }
  void ChargeHandshake(int64_t handshake_bytes) { handshake_bytes_ += handshake_bytes; }

  // Charges the bytes of an aborted call for drain_time(), since they may still arrive.
  void DrainAborted(TimePoint now, int64_t cost_bytes);
  void Drain(TimePoint now);
  int64_t draining_bytes() const { return draining_bytes_; }
  TimePoint next_drain() const { return draining_.empty() ? TimePoint::max() : draining_.front().until; }

  void Set(int64_t bytes);  // charges above the new budget only drain
  // Call it before each event.
  void Advance(TimePoint now) { pacer_.Advance(now); }
  const Pacer& pacer() const { return pacer_; }
  void Pace(int64_t granted_cost_bytes) { pacer_.Take(granted_cost_bytes); }
  // The budget stays, except after a change from or to unscheduled: then it begins again.
  void SetOptions(const ScheduleOptions& options);
  void Lend(const BudgetLease& lease);
  void EndLease(TimePoint now);  // does nothing before its end
  int64_t bytes() const { return bytes_; }
  int64_t bytes_at(TimePoint now) const { return now < until_ ? bytes_ : 0; }
  int64_t link_bytes() const { return link_bytes_; }
  int64_t plan_bytes() const { return plan_bytes_; }
  const std::vector<double>& class_weights() const { return class_weights_; }  // as in BudgetLease
  int64_t in_flight_bytes() const { return in_flight_bytes_; }
  int64_t early_bytes() const { return early_bytes_; }
  int64_t slow_bytes() const { return slow_bytes_; }
  int64_t handshake_bytes() const { return handshake_bytes_; }
  int64_t packet_bytes() const { return packet_bytes_; }
  std::chrono::nanoseconds drain_time() const;  // until the bytes of an aborted call have arrived
  // The bytes of slow workers that do not count. They have a bound, since a common cause of their slowness may end.
  int64_t UncountedBytes() const { return std::clamp<int64_t>(slow_bytes_ - CountedBytes(), 0, bytes_ / 10 * 3); }
  // Returns whether slow workers have all that does not count.
  bool slow_are_full() const { return slow_bytes_ - CountedBytes() >= bytes_ / 10 * 3; }
  bool limited() const { return limited_; }

 private:
  void SetPacer();
  int64_t CountedBytes() const { return std::max(bytes_ / 3, packet_bytes_); }  // at most, of slow workers

  struct Draining {
    TimePoint until;
    int64_t cost_bytes;
  };

  bool limited_;  // false: unscheduled
  int64_t bytes_;
  int64_t link_bytes_;                  // the whole budget, of which `bytes_` is a part
  int64_t plan_bytes_;                  // from BudgetLease, like the next two
  std::optional<int64_t> start_bytes_;  // ScheduleOptions::budget_bytes; empty: the buffer of the profile
  bool may_exceed_ = true;
  std::vector<double> class_weights_;
  TimePoint until_ = TimePoint::max();
  LinkProfile profile_;
  bool paced_ = false;
  Pacer pacer_;
  int64_t in_flight_bytes_ = 0;  // including draining_bytes_
  int64_t early_bytes_ = 0;      // the early part of in_flight_bytes_
  int64_t slow_bytes_ = 0;       // the part of slow workers
  int64_t handshake_bytes_ = 0;  // the part of handshakes
  int64_t packet_bytes_ = 0;     // cost of a full packet
  // In the order of the aborts, which is the order of `until`, since all entries drain equally long. After a change of
  // the profile an entry may wait for the previous one.
  std::deque<Draining> draining_;
  int64_t draining_bytes_ = 0;
};

}  // namespace sluice
