#pragma once

#include <cstdint>
#include <optional>

#include "sluice/schedule.h"
#include "sluice/time_point.h"

#include "lib/scheduling/live_calls.h"

namespace sluice {

// Decides whether a request may leave and a response may be granted now, and with how many bytes. It changes nothing,
// and the objects that it refers to must outlive it. There is one for each schedule. Not thread-safe.
class Admission {
 public:
  Admission(const ScheduleOptions& options, LiveCalls& calls);

  bool granting() const { return options_.policy == SchedulePolicy::kGrants; }

  // Returns how many bytes of its response, 0 or more, come with the request of a waiting call whose turn it is.
  // Returns nullopt if the call must wait.
  std::optional<int64_t> BytesWithRequest(const Call& call, TimePoint now) const;
  // Returns until when the request of a waiting call waits for room for its response, rather than leave without a
  // grant; TimePoint::max() if it does not wait.
  TimePoint WaitsForRoomUntil(const Call& call, TimePoint now) const;

  // Handshakes together take at most a third of the budget, or leave one at a time. Handshakes of workers that could
  // not be reached before take at most a sixth. HandshakeHasShare returns whether the handshake fits this share; if so,
  // the schedule makes room for it. HandshakeFits returns whether it also fits the free budget.
  bool HandshakeHasShare(const Call& call) const;
  bool HandshakeFits(const Call& call) const;

  // For a call that waits, or is out without a grant. Returns how many bytes of its response it may be granted before
  // the response is ready, or nullopt if it may get none now.
  std::optional<int64_t> EarlyBytes(const Call& call) const;

  // Returns the part of `bytes` that one grant covers: all of them if they cost at most a third of plan_bytes.
  // Otherwise it is a part in full packets.
  int64_t PartOf(int64_t bytes) const { return PartWithin(bytes, part_cost()); }
  // Returns the bytes of the next grant of a ready response: a part that costs at most the share of the worker. A
  // tunnel gets its whole window.
  int64_t GrantOf(const Call& call) const;
  bool HasRoomForGrant(const Call& call, int64_t bytes) const;

  // Returns the room for headers that may arrive at any moment: one set for each call that is out and not ready. The
  // headers of stragglers and silent calls, together with the early bytes, take at most a third of the budget.
  // Otherwise a rack of dead workers would leave no room for other workers.
  int64_t HeaderBytes() const { return YoungHeaderBytes() + SilentHeaderBytes(0, 0); }

  // Returns a lease that is large enough for the next grant and the next request once all draining bytes have drained.
  // Returns 0 if no call waits.
  int64_t NeedBytes(const Call* ready, const Call* ahead, const Call* waiting) const;

 private:
  std::optional<int64_t> BytesInRolling(const Call& call) const;
  // Returns a part that costs at most the share of the worker.
  int64_t PartOf(int64_t bytes, const QueuedWorker& worker) const;
  int64_t PartWithin(int64_t bytes, int64_t cost_bytes) const;
  bool MayAsk(const Call& call) const;
  bool AllFits(const Call& call) const;
  int64_t EarlyBytesWithRoom(const Call& call) const;
  bool HasRoomForEarly(int64_t bytes) const;
  bool WindowIsOpen(const QueuedBlock& block) const;
  // Returns the work of all blocks of the class that are not larger.
  RankedWork WorkUpTo(const QueuedBlock& block) const { return blocks_.WorkUpTo(block.traffic_class, block.rank); }
  int64_t third() const { return budget_.bytes() / kShare; }
  int64_t part_cost() const;  // the most that one grant costs, unless a packet costs more
  int64_t YoungHeaderBytes() const { return window_.HeaderBytes(sent_.young()); }
  int64_t SilentHeaderBytes(int64_t more_calls, int64_t more_early_bytes) const;
  int64_t HeaderReserve(const Call& call) const;

  // Calls that are in the window of their class.
  int64_t Ungranted(size_t traffic_class) const {
    return sent_.young(traffic_class) + workers_.ready_calls(traffic_class);
  }

  static constexpr int64_t kShare = 3;

  const ScheduleOptions& options_;
  const BlockQueue& blocks_;
  const Budget& budget_;
  const Outstanding& outstanding_;
  const WorkerLaps& laps_;
  const QueuedWorkers& workers_;
  const GrantQueue& queue_;
  const ServiceOrder& order_;
  const GrantWindow& window_;
  const SentCalls& sent_;
};

}  // namespace sluice
