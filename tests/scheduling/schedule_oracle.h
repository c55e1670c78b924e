#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sluice/link_schedule.h"

namespace sluice {

// A second bookkeeping of what a LinkSchedule may do, written from its contract alone: plain loops, arithmetic of its
// own for costs, batches, slots and stalls. What the window of grants is, and how many straggle, it takes from the
// schedule and checks for bounds. An event is Begin, then what happened, then Apply, then End. One a schedule.
class ScheduleOracle {
 public:
  struct Call {
    BlockId block = 0;
    CallId id;
    int64_t answer = 0;  // bytes of the buffer, all of it
    bool estimated = false;
    int64_t charged = 0;  // in flight
    int64_t batch = 0;
    enum { kWaiting, kSent, kReady, kInFlight, kEnded } phase = kWaiting;
    bool aborted = false;
    TimePoint sent_at;
    TimePoint stalls_at = TimePoint::max();
  };
  struct Block {
    TimePoint deadline;
    std::deque<uint64_t> waiting;  // tags, in the order in which they have to leave
    std::deque<uint64_t> ready;    // in the order in which they have to be granted
    int64_t out = 0;               // sent and not ended
    bool cancelled = false;
    int64_t last_batch = -1;  // of the calls sent
    int64_t queued_batches = 0;
    std::chrono::nanoseconds slot{0};
    TimePoint earliest_slot = TimePoint::min();  // two batches would meet before it
    TimePoint latest_slot = TimePoint::min();    // the next batch is due by then
  };

  ScheduleOracle(const LinkSchedule::Options& options, std::chrono::nanoseconds byte_time);

  void Begin(TimePoint now);
  void Submitted(BlockId id, const std::vector<CallRequest>& calls, TimePoint deadline);  // tags count on
  void Added(BlockId id, const CallRequest& call);
  void Readied(uint64_t tag, std::optional<int64_t> response_bytes);
  void Progressed(uint64_t tag, int64_t remaining_bytes);
  void Finished(uint64_t tag, CallEnd end);
  void Cancelled(BlockId id);
  void CallCancelled(uint64_t tag);
  void BudgetSet(int64_t bytes);
  void Apply(const std::vector<Action>& actions, const ScheduleState& state);
  void End(const ScheduleState& state, TimePoint next_timer);

  // The first thing that went wrong; empty when nothing did.
  const std::string& failure() const { return failure_; }
  void Fail(const std::string& what);

  TimePoint now() const { return now_; }
  const std::map<BlockId, Block>& blocks() const { return blocks_; }
  const Call& call(uint64_t tag) const { return calls_.at(tag); }
  uint64_t next_tag() const { return calls_.size(); }
  int64_t HeaderBytes() const;  // of all that is sent and not ready
  int64_t InFlightBytes() const;
  int64_t BufferBytes(int64_t payload_bytes) const;  // what a burst of so many takes of the buffer

 private:
  // What has to happen without an admission.
  void ExpectAbort(uint64_t tag);
  void ExpectEnd(uint64_t tag, Action::Kind kind);
  void ExpectAbortsAndEnds(BlockId id, bool granted_too, Action::Kind end);

  void Send(const Action& action);
  void Grant(uint64_t tag);
  void Charge(Call& call);
  void Remove(std::deque<uint64_t>& tags, uint64_t tag);
  void Expect(bool holds, const std::string& what);
  void CheckBatch(const Call& call, Block& block);
  void CheckIdle();
  void CheckState(const ScheduleState& state);
  void CheckWindow(const ScheduleState& state);
  void CheckTimer(TimePoint next_timer);
  const Block* WaitsForSlot() const;
  bool granting() const { return options_.discipline == Discipline::kGrants; }
  int64_t CallsIn(int phase) const;
  bool MayGoGranted(const Call& call) const;
  bool MayAsk() const;
  bool MustAsk() const;
  bool Fits(int64_t cost) const;
  int64_t CostOf(const Call& call) const;
  int64_t HeaderCost() const {
    return options_.profile.buffer_packets > 0 ? Packets(192) * options_.profile.frame_bytes : 192;
  }
  int64_t Packets(int64_t payload_bytes) const;
  std::chrono::nanoseconds SlotOf(int64_t payload_bytes) const;
  std::chrono::nanoseconds DrainTime() const;

  const LinkSchedule::Options options_;
  const std::chrono::nanoseconds byte_time_;
  const std::chrono::nanoseconds jitter_;
  const int64_t buffer_;
  int64_t budget_;
  TimePoint now_ = TimePoint::min();
  std::vector<Call> calls_;
  std::map<BlockId, Block> blocks_;
  std::multimap<TimePoint, int64_t> draining_;
  std::set<std::pair<Action::Kind, uint64_t>> expected_;
  int64_t window_ = 0;
  int64_t stragglers_ = 0;
  std::string failure_;
};

}  // namespace sluice
