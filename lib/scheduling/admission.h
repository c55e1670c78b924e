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
  std::optional<int64_t> BytesWithRequest(const Call& call) const;
  // With grants: returns whether no request of any class can leave now.
  bool NoRequestFits() const;
  // Returns the block whose request is next in the class; null if none waits, or can leave now.
  QueuedBlock* NextRequest(size_t traffic_class) const;
  // Returns classes for which NextRequest returns null.
  ClassBits Refused() const;

  // Handshakes together take at most a third of the budget, or leave one at a time. Handshakes of workers that could
  // not be reached before take at most a sixth. HandshakeHasShare returns whether the handshake fits this share; if so,
  // the schedule makes room for it. HandshakeFits returns whether it also fits the free budget.
  bool HandshakeHasShare(const Call& call) const;
  bool HandshakeFits(const Call& call) const;

  // For a call that waits, or is out without a grant. Returns how many bytes of its response it may be granted before
  // the response is ready, or nullopt if it may get none now. Expected sizes and times decide here alone, so early
  // bytes take at most a third of the budget, and only while no ready response waits.
  std::optional<int64_t> EarlyBytes(const Call& call) const;

  // Returns the part of `bytes` that one grant covers: all of them if they cost at most a third of plan_bytes.
  // Otherwise it is a part in full packets, which leaves no single packet.
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
  bool MayAskAlone() const;
  bool RequestsNeedRoom() const;
  ClassBits KeptBounds() const;  // one bit for each bound on the sums of all classes that they keep
  // Returns whether a request without early bytes may leave if there is room for its headers.
  bool MayAskWithRoom(const QueuedBlock& block) const;
  bool HasShareOfReady(const QueuedBlock& block) const;
  bool HasShareOfHeaders(size_t traffic_class) const;
  bool HasShare(size_t traffic_class, int64_t all_bytes, int64_t class_bytes, double bound_bytes) const;
  // Returns the room for all headers with those of a request that waits for this room alone; 0 if there is none.
  int64_t WantedHeaderBytes() const;
  bool RequestMayLeave() const;
  template <class Predicate>
  const Call* FindRequest(Predicate predicate) const;  // among the next requests of all classes; null if there is none
  int64_t HeaderBytesOf(const Call& request) const {
    return sent_.usual_header_bytes() + sent_.LargeHeaderBytes(*request.worker);
  }
  int64_t third() const { return budget_.bytes() / kShare; }
  int64_t part_cost() const;  // the most that one grant costs, unless a packet costs more
  int64_t YoungHeaderBytes() const;
  int64_t SilentHeaderBytes(int64_t more_bytes, int64_t more_early_bytes) const;
  // Returns whether a response of the class leaves enough of the budget to heavier classes that have responses to come
  // and none ready.
  bool LeavesRoomToHeavier(const Call& call) const;
  int64_t HeaderReserve(const Call& call) const;

  static constexpr int64_t kShare = 3;

  const ScheduleOptions& options_;
  BlockQueue& blocks_;
  const Budget& budget_;
  const Outstanding& outstanding_;
  const WorkerLaps& laps_;
  const GrantQueue& queue_;
  ServiceOrder& order_;
  const SentCalls& sent_;
  // The results of NextRequest that hold until the class changes, or the sums of all classes cross a bound.
  mutable ClassBits refused_;
  mutable ClassBits kept_bounds_;
};

}  // namespace sluice
