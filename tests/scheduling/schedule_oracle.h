#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "sluice/link_schedule.h"

namespace sluice {

// A second bookkeeping of what a LinkSchedule may do, written from its contract alone: plain loops, arithmetic of its
// own for costs, batches and slots. An event is Begin, then what happened, then Apply, then End. One a schedule.
class ScheduleOracle {
 public:
  struct Call {
    BlockId block = 0;
    CallId id;
    int64_t cost = 0;
    int64_t batch = 0;
    enum { kWaiting, kInFlight, kEnded } phase = kWaiting;
    bool aborted = false;
  };
  struct Block {
    TimePoint deadline;
    std::deque<uint64_t> waiting;  // tags, in the order in which they have to leave
    int64_t in_flight = 0;
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
  void Finished(uint64_t tag, CallEnd end);
  void Cancelled(BlockId id);
  void BudgetSet(int64_t bytes);
  void Apply(const std::vector<Action>& actions);
  void End(const ScheduleState& state, TimePoint next_timer);

  // The first thing that went wrong; empty when nothing did.
  const std::string& failure() const { return failure_; }
  void Fail(const std::string& what);

  TimePoint now() const { return now_; }
  const std::map<BlockId, Block>& blocks() const { return blocks_; }
  const Call& call(uint64_t tag) const { return calls_.at(tag); }
  uint64_t next_tag() const { return calls_.size(); }
  int64_t in_flight_calls() const;
  int64_t BufferBytes(int64_t payload_bytes) const;  // what a burst of so many takes of the buffer

 private:
  void Send(uint64_t tag, CallId id);
  void Expect(bool holds, const std::string& what);
  void EndWaiting(uint64_t tag);
  void CheckBatch(const Call& call, Block& block);
  void CheckIdle();
  void CheckState(const ScheduleState& state);
  void CheckTimer(TimePoint next_timer);
  const Block* WaitsForSlot() const;
  int64_t InFlightBytes() const;
  bool Fits(int64_t cost) const;
  int64_t Packets(int64_t payload_bytes) const;
  std::chrono::nanoseconds SlotOf(int64_t payload_bytes) const;

  const LinkSchedule::Options options_;
  const std::chrono::nanoseconds byte_time_;
  const std::chrono::nanoseconds jitter_;
  const int64_t buffer_;
  int64_t budget_;
  TimePoint now_ = TimePoint::min();
  std::vector<Call> calls_;
  std::map<BlockId, Block> blocks_;
  std::multimap<TimePoint, int64_t> draining_;
  std::string failure_;
};

}  // namespace sluice
