#pragma once

#include <cstdint>
#include <optional>

#include "sluice/link_schedule.h"

#include "lib/scheduling/live_calls.h"

namespace sluice {

// Whether a request may leave and an answer may be granted now, and with how many bytes. Decides and changes nothing;
// what it refers to outlives it. One a schedule, not thread-safe.
class Admission {
 public:
  Admission(const LinkSchedule::Options& options, const LiveCalls& calls);

  void SetPlan();  // after a change of the profile or of the budget that answers are planned for

  // For a waiting call whose turn it is: the bytes of its answer that come with the request, 0 or more; nothing when it
  // has to wait.
  std::optional<int64_t> BytesWithRequest(const Call& call) const;

  // What is granted at once of so many bytes: all of them where their cost fits a third of the budget, else a part in
  // full packets.
  int64_t PartOf(int64_t bytes) const;
  bool HasRoomForGrant(const Call& call, int64_t bytes) const;

  // Room for the headers that may come at any moment: one of each call that is out and not ready. Those of stragglers
  // and silent calls, and the early bytes, together take no more than a third of the budget: a rack of dead workers
  // would leave nothing for the others else.
  int64_t HeaderBytes() const { return YoungHeaderBytes() + SilentHeaderBytes(0, 0); }

  // A lease that lets the next grant and the next request come, where nothing is in flight that drains; 0: none waits.
  int64_t NeedBytes(const Call* ready, const Call* waiting) const;

 private:
  std::optional<int64_t> BytesInRolling(const Call& call) const;
  std::optional<int64_t> BytesAhead(const Call& call) const;
  std::optional<int64_t> EarlyBytes(const Call& call) const;
  bool MayAsk() const;
  int64_t third() const { return budget_.bytes() / kShare; }
  int64_t YoungHeaderBytes() const { return calls_.window().HeaderBytes(calls_.sent().young()); }
  int64_t SilentHeaderBytes(int64_t more_calls, int64_t more_early_bytes) const;
  int64_t HeaderReserve() const;

  static constexpr int64_t kShare = 3;

  const LinkSchedule::Options& options_;
  const LiveCalls& calls_;
  const Budget& budget_;
  const bool granting_;
  int64_t part_cost_ = 0;   // the most that one grant costs, but for a packet
  int64_t part_bytes_ = 0;  // of an answer that costs more: k full packets without their framing
};

}  // namespace sluice
