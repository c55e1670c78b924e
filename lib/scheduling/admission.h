#pragma once

#include <cstdint>
#include <optional>

#include "sluice/schedule.h"

#include "lib/scheduling/live_calls.h"

namespace sluice {

// Decides whether a request may leave and a response may be granted now, and with how many bytes. It changes nothing.
// The objects that it refers to must outlive it. There is one for each schedule. Not thread-safe.
class Admission {
 public:
  Admission(const ScheduleOptions& options, const LiveCalls& calls);

  void SetPlan();  // call it after a change of the profile, or of the budget that parts are sized for

  // For a waiting call whose turn it is: the bytes of its response that come with the request, 0 or more. Nothing if
  // the call has to wait.
  std::optional<int64_t> BytesWithRequest(const Call& call) const;

  // Handshakes take a third of the budget at most, or go one at a time; those of workers that could not be reached
  // before, half of that. HandshakeHasShare: the handshake fits this share, so room is made for it. HandshakeFits: it
  // fits the budget, too.
  bool HandshakeHasShare(const Call& call) const;
  bool HandshakeFits(const Call& call) const;

  // For a call that waits, or is out without a grant: the bytes of its response that it may be granted before the
  // response is ready. Nothing if there are none now.
  std::optional<int64_t> EarlyBytes(const Call& call) const;

  // The part of `bytes` that is granted at once: all of them if their cost fits a third of the budget, else a part in
  // full packets.
  int64_t PartOf(int64_t bytes) const { return PartWithin(bytes, part_cost_); }
  // The part for a worker, which costs no more than its share.
  int64_t PartOf(int64_t bytes, const QueuedWorker& worker) const;
  bool HasRoomForGrant(const Call& call, int64_t bytes) const;

  // Room for the headers that may come at any moment: one for each call that is out and not ready. The headers of
  // stragglers and silent calls take no more, together with the early bytes, than a third of the budget. Otherwise a
  // rack of dead workers would leave nothing for the others.
  int64_t HeaderBytes() const { return YoungHeaderBytes() + SilentHeaderBytes(0, 0); }

  // A lease that is enough for the next grant and the next request when everything that drains has drained. 0 if none
  // waits.
  int64_t NeedBytes(const Call* ready, const Call* ahead, const Call* waiting) const;

 private:
  std::optional<int64_t> BytesInRolling(const Call& call) const;
  int64_t PartWithin(int64_t bytes, int64_t cost_bytes) const;
  bool MayAsk() const;
  int64_t third() const { return budget_.bytes() / kShare; }
  int64_t YoungHeaderBytes() const { return calls_.window().HeaderBytes(calls_.sent().young()); }
  int64_t SilentHeaderBytes(int64_t more_calls, int64_t more_early_bytes) const;
  int64_t HeaderReserve() const;

  static constexpr int64_t kShare = 3;

  const ScheduleOptions& options_;
  const LiveCalls& calls_;
  const Budget& budget_;
  const bool granting_;
  int64_t part_cost_ = 0;  // maximum cost of one grant, unless a single packet costs more
};

}  // namespace sluice
