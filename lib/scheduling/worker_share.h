#pragma once

#include <chrono>
#include <cstdint>

#include "sluice/time_point.h"

namespace sluice {

// How much of the budget one worker may have outstanding, depending on how fast it delivers. There is one for each
// worker of a schedule. Not thread-safe.
//
// A lap begins when the worker owes bytes: they are granted, and their prefix has arrived. It ends when the worker has
// delivered these bytes. Everything in flight fits the budget, so a worker that sends at once ends its lap before the
// link has received two budgets. If the link has received more by then, other workers have overtaken this one. Its
// bytes are not on the wire, so the worker is late, and its share is halved. If the worker ends its lap in time and has
// used at least half of its share, the share grows. It grows by a quarter, or by a packet if that is more.
//
// The lap counts the bytes that the link receives, and not time. So a wrong capacity or round trip in the profile, a
// late process or an idle link makes no worker late. Time counts in two cases. A lap of less than two round trips is
// never late, since a far worker is not a slow one. A lap of ten drain times is late if other calls wait for room: the
// link receives little if slow workers hold the whole budget.
class WorkerShare {
 public:
  // The link at the moment of an event, in units of the budget.
  struct Link {
    TimePoint now;
    int64_t received_bytes = 0;  // since the start
    int64_t plan_bytes = 0;      // the budget that parts are sized for
    int64_t packet_bytes = 0;    // cost of a full packet
    std::chrono::nanoseconds long_lap{0};
  };

  // A share begins as one part. It is at most the budget, and at least a packet.
  int64_t Bytes(const Link& link) const;
  // Returns whether the worker was late so often that its share is less than one part.
  bool slow() const { return part_of_budget_ < kFirst; }

  // Records that a response was ready this long after its request. The shortest such time bounds the round trip to the
  // worker.
  void OnReady(std::chrono::nanoseconds ready_after);
  // Records that the worker owes `owed_bytes` after a change, and has just delivered `delivered_bytes`. Returns whether
  // a lap begins.
  bool OnOwed(const Link& link, int64_t owed_bytes, int64_t delivered_bytes);
  bool owes() const { return to_deliver_ > 0; }  // a lap is under way
  TimePoint lap_since() const { return lap_since_; }
  // Returns whether the current lap may be late. If not, no lap that began after it may be late, either.
  bool IsLong(const Link& link) const;
  // If the current lap is already late, halves the share, begins the lap again, and returns true. `wanted`: other calls
  // wait for room.
  bool Look(const Link& link, bool wanted);
  // Records that bytes of the worker have stalled. The share falls to one packet, so a paused worker comes back with at
  // most two packets for each stall timeout of its pause. Rejected: no bytes until the worker sends something. If only
  // one call of the worker hangs, and its other responses announced themselves before, nothing comes before its
  // deadline.
  void OnStall(const Link& link);

 private:
  static constexpr double kFirst = 1.0 / 3;

  bool LinkIsAhead(const Link& link) const;
  bool TakesLong(const Link& link) const;
  bool Overtaken(const Link& link) const;
  void EndLap(const Link& link);
  void Shrink(const Link& link);
  void Begin(const Link& link, int64_t owed_bytes);
  static double PacketOf(const Link& link);

  double part_of_budget_ = kFirst;
  std::chrono::nanoseconds least_ready_after_{0};  // 0: unknown

  // The current lap.
  int64_t lap_bytes_ = 0;     // owed bytes at its beginning
  int64_t to_deliver_ = 0;    // part of lap_bytes_ that was not delivered yet; 0: no lap
  int64_t lap_received_ = 0;  // bytes that the link had received at its beginning
  TimePoint lap_since_;
};

}  // namespace sluice
