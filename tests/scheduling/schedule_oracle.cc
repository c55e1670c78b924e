#include "tests/scheduling/schedule_oracle.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace sluice {
namespace {

int64_t BufferOf(const LinkProfile& profile) {
  return profile.buffer_bytes > 0 ? profile.buffer_bytes : profile.buffer_packets * profile.frame_bytes;
}

}  // namespace

ScheduleOracle::ScheduleOracle(const LinkSchedule::Options& options, std::chrono::nanoseconds byte_time)
    : options_(options),
      byte_time_(byte_time),
      jitter_(absl::ToChronoNanoseconds(options.profile.timer_jitter)),
      buffer_(BufferOf(options.profile)),
      budget_(options.budget_bytes.value_or(buffer_)) {}

void ScheduleOracle::Begin(TimePoint now) {
  now_ = std::max(now_, now);
  draining_.erase(draining_.begin(), draining_.upper_bound(now_));
}

void ScheduleOracle::Submitted(BlockId id, const std::vector<CallRequest>& calls, TimePoint deadline) {
  Expect(blocks_.empty() || blocks_.rbegin()->first < id, "a block id went back");
  Block& block = blocks_[id];
  block.deadline = deadline;
  int64_t batches = 1;
  if (options_.discipline == Discipline::kBatches) {
    int64_t largest = 1;
    for (const CallRequest& call : calls) largest = std::max(largest, call.response_bytes);
    const int64_t burst = Packets(largest) * options_.profile.frame_bytes;
    const int64_t batch_workers = std::max<int64_t>(1, budget_ / burst);
    const auto count = static_cast<int64_t>(calls.size());
    while (batches * batch_workers < count) ++batches;
    block.slot = SlotOf(largest);
  }
  block.queued_batches = batches;
  const uint64_t first_tag = calls_.size();
  for (size_t i = 0; i < calls.size(); ++i) {
    calls_.push_back(
        {.block = id, .cost = BufferBytes(calls[i].response_bytes), .batch = static_cast<int64_t>(i) % batches});
  }
  for (int64_t batch = 0; batch < batches; ++batch) {
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls_[first_tag + i].batch == batch) block.waiting.push_back(first_tag + i);
    }
  }
}

void ScheduleOracle::Added(BlockId id, const CallRequest& call) {
  Block& block = blocks_.at(id);
  if (options_.discipline == Discipline::kBatches) block.slot = std::max(block.slot, SlotOf(call.response_bytes));
  block.waiting.push_back(calls_.size());
  calls_.push_back({.block = id, .id = {}, .cost = BufferBytes(call.response_bytes), .batch = block.queued_batches++});
}

void ScheduleOracle::Finished(uint64_t tag, CallEnd end) {
  Call& call = calls_.at(tag);
  --blocks_.at(call.block).in_flight;
  call.phase = Call::kEnded;
  if (end == CallEnd::kAborted && options_.discipline != Discipline::kUnscheduled) {
    const auto rtt = absl::ToChronoNanoseconds(options_.profile.propagation_rtt);
    draining_.emplace(now_ + rtt + buffer_ * byte_time_, call.cost);
  }
}

void ScheduleOracle::Cancelled(BlockId id) {
  blocks_.at(id).cancelled = true;
}

void ScheduleOracle::BudgetSet(int64_t bytes) {
  budget_ = bytes;
}

void ScheduleOracle::Apply(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    Call& call = calls_.at(action.tag);
    const Block& block = blocks_.at(call.block);
    switch (action.kind) {
      case Action::Kind::kSend:
        Send(action.tag, action.call);
        break;
      case Action::Kind::kExpire:
        Expect(block.deadline <= now_, "a call expired before its deadline");
        EndWaiting(action.tag);
        break;
      case Action::Kind::kDrop:
        Expect(block.cancelled, "a call was dropped that nobody cancelled");
        EndWaiting(action.tag);
        break;
      case Action::Kind::kAbort:
        Expect(block.cancelled && call.phase == Call::kInFlight && !call.aborted, "an abort too many");
        Expect(action.call == call.id, "an abort names another call");
        call.aborted = true;
        break;
      case Action::Kind::kGrant:
      case Action::Kind::kStall:
        Expect(false, "a grant without grants");
        break;
    }
  }
}

void ScheduleOracle::Send(uint64_t tag, CallId id) {
  Call& call = calls_.at(tag);
  Block& block = blocks_.at(call.block);
  for (const auto& [older, other] : blocks_) {
    if (older < call.block) Expect(other.waiting.empty(), "a block was overtaken");
  }
  Expect(!block.waiting.empty() && block.waiting.front() == tag, "calls of a block left out of order");
  Expect(block.deadline > now_ && !block.cancelled, "a call left a block that is over");
  Expect(Fits(call.cost), "a call left that did not fit");
  if (options_.discipline == Discipline::kBatches) CheckBatch(call, block);
  if (!block.waiting.empty()) block.waiting.pop_front();
  call.phase = Call::kInFlight;
  call.id = id;
  ++block.in_flight;
}

void ScheduleOracle::CheckBatch(const Call& call, Block& block) {
  Expect(in_flight_calls() == block.in_flight, "two blocks were on the link");
  const bool opens_slot = call.batch != block.last_batch;
  Expect(!opens_slot || now_ >= block.earliest_slot, "two batches met");
  // Lateness within the jitter does not move the slots; more does. When the first of them began is not known here, only
  // that it was not later than now.
  block.earliest_slot = now_ - jitter_ + block.slot;
  if (opens_slot) block.latest_slot = (block.last_batch < 0 ? now_ : block.latest_slot) + block.slot;
  block.latest_slot = std::max(block.latest_slot, block.earliest_slot);
  block.last_batch = call.batch;
}

void ScheduleOracle::EndWaiting(uint64_t tag) {
  Call& call = calls_.at(tag);
  Block& block = blocks_.at(call.block);
  Expect(call.phase == Call::kWaiting, "a call ended twice, or while it was in flight");
  Expect(!block.waiting.empty() && block.waiting.front() == tag, "calls of a block ended out of order");
  if (!block.waiting.empty()) block.waiting.pop_front();
  call.phase = Call::kEnded;
}

void ScheduleOracle::End(const ScheduleState& state, TimePoint next_timer) {
  std::erase_if(blocks_, [](const auto& entry) { return entry.second.waiting.empty() && entry.second.in_flight == 0; });
  CheckIdle();
  CheckState(state);
  CheckTimer(next_timer);
}

// What still waits has a reason to.
void ScheduleOracle::CheckIdle() {
  for (const Call& call : calls_) {
    if (call.phase != Call::kInFlight) continue;
    Expect(call.aborted == blocks_.at(call.block).cancelled, "a cancelled call was not aborted");
  }
  bool first = true;
  for (const auto& [id, block] : blocks_) {
    if (block.waiting.empty()) continue;
    Expect(block.deadline > now_ && !block.cancelled, "a call waits in a block that is over");
    if (!std::exchange(first, false) || !Fits(calls_.at(block.waiting.front()).cost)) continue;
    const Call& head = calls_.at(block.waiting.front());
    const bool not_its_turn = in_flight_calls() != block.in_flight;
    const bool not_its_slot = head.batch != block.last_batch && now_ < block.latest_slot;
    Expect(options_.discipline == Discipline::kBatches && (not_its_turn || not_its_slot), "a call waits for nothing");
  }
}

void ScheduleOracle::CheckState(const ScheduleState& state) {
  int64_t waiting = 0;
  for (const auto& [id, block] : blocks_) waiting += static_cast<int64_t>(block.waiting.size());
  const auto submitted = static_cast<int64_t>(calls_.size());
  Expect(state.submitted_calls == submitted, "submitted_calls");
  Expect(state.waiting_calls == waiting, "waiting_calls");
  Expect(state.in_flight_calls == in_flight_calls(), "in_flight_calls");
  Expect(state.ended_calls == submitted - waiting - in_flight_calls(), "ended_calls");
  Expect(state.blocks == static_cast<int64_t>(blocks_.size()), "blocks");
  Expect(state.in_flight_bytes == InFlightBytes(),
         absl::StrCat("in_flight_bytes ", state.in_flight_bytes, " instead of ", InFlightBytes()));
}

void ScheduleOracle::CheckTimer(TimePoint next_timer) {
  Expect(next_timer > now_, "the timer does not advance");
  TimePoint latest = draining_.empty() ? TimePoint::max() : draining_.begin()->first;
  for (const auto& [id, block] : blocks_) {
    if (!block.waiting.empty()) latest = std::min(latest, block.deadline);
  }
  Expect(next_timer <= latest, "the timer misses a deadline or a drained call");
  const Block* block = WaitsForSlot();
  Expect(next_timer == latest || block != nullptr, "a timer for nothing");
  // A call that does not fit may have had its slot, and then waits without a timer.
  if (block == nullptr || !Fits(calls_.at(block->waiting.front()).cost)) return;
  Expect(next_timer <= block->latest_slot, "the timer misses a slot");
}

// The block whose next batch may still wait for its slot; null when there is none.
const ScheduleOracle::Block* ScheduleOracle::WaitsForSlot() const {
  const auto waits = [](const auto& entry) { return !entry.second.waiting.empty(); };
  const auto first = std::find_if(blocks_.begin(), blocks_.end(), waits);
  if (options_.discipline != Discipline::kBatches || first == blocks_.end()) return nullptr;
  const Block& block = first->second;
  const bool its_turn = in_flight_calls() == block.in_flight && block.last_batch >= 0;
  const bool opens_slot = calls_.at(block.waiting.front()).batch != block.last_batch;
  return its_turn && opens_slot && block.latest_slot > now_ ? &block : nullptr;
}

void ScheduleOracle::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = absl::StrCat(what, ", at ", now_.time_since_epoch().count(), " ns");
}

void ScheduleOracle::Expect(bool holds, const std::string& what) {
  if (!holds) Fail(what);
}

int64_t ScheduleOracle::in_flight_calls() const {
  return std::count_if(calls_.begin(), calls_.end(), [](const Call& call) { return call.phase == Call::kInFlight; });
}

int64_t ScheduleOracle::InFlightBytes() const {
  int64_t bytes = 0;
  for (const Call& call : calls_) bytes += call.phase == Call::kInFlight ? call.cost : 0;
  for (const auto& [until, cost] : draining_) bytes += cost;
  return bytes;
}

bool ScheduleOracle::Fits(int64_t cost) const {
  const int64_t bytes = InFlightBytes();
  return options_.discipline == Discipline::kUnscheduled || bytes == 0 || bytes + cost <= budget_;
}

int64_t ScheduleOracle::Packets(int64_t payload_bytes) const {
  int64_t packets = payload_bytes / options_.profile.packet_payload_bytes;
  if (packets * options_.profile.packet_payload_bytes < payload_bytes) ++packets;
  return std::max<int64_t>(packets, 1);
}

int64_t ScheduleOracle::BufferBytes(int64_t payload_bytes) const {
  const LinkProfile& profile = options_.profile;
  const int64_t packets = Packets(payload_bytes);
  if (profile.buffer_packets > 0) return packets * profile.frame_bytes;
  return std::max<int64_t>(payload_bytes, 1) + packets * (profile.frame_bytes - profile.packet_payload_bytes);
}

// T~ = ceil((T + d_max) / Δt) · Δt with the T of a persistent connection: two rounds.
std::chrono::nanoseconds ScheduleOracle::SlotOf(int64_t payload_bytes) const {
  const LinkProfile& profile = options_.profile;
  const auto round = absl::ToChronoNanoseconds(profile.propagation_rtt) + buffer_ * byte_time_;
  const auto transmission = (profile.frame_bytes + profile.ack_frame_bytes) * Packets(payload_bytes) * byte_time_;
  const auto step = absl::ToChronoNanoseconds(profile.timer_granularity);
  const auto time = transmission + 2 * round + jitter_;
  return (time + step - std::chrono::nanoseconds(1)) / step * step;
}

}  // namespace sluice
