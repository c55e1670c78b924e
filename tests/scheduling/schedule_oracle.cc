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
  for (uint64_t tag = 0; tag < calls_.size(); ++tag) {
    Call& call = calls_[tag];
    if (call.stalls_at > now_) continue;
    call.stalls_at = TimePoint::max();
    call.charged = 0;
    expected_.emplace(Action::Kind::kStall, tag);
  }
  for (const auto& [id, block] : blocks_) {
    if (block.deadline <= now_) ExpectAbortsAndEnds(id, false, Action::Kind::kExpire);
  }
}

void ScheduleOracle::Submitted(BlockId id, const std::vector<CallRequest>& calls, TimePoint deadline) {
  Expect(blocks_.empty() || blocks_.rbegin()->first < id, "a block id went back");
  Block& block = blocks_[id];
  block.deadline = deadline;
  int64_t batches = 1;
  if (options_.discipline == Discipline::kBatches) {
    int64_t largest = 1;
    for (const CallRequest& call : calls) largest = std::max(largest, call.response_bytes);
    const int64_t part = std::min(largest, options_.max_in_flight_per_call_bytes.value_or(largest));
    const int64_t burst = Packets(part) * options_.profile.frame_bytes;
    const int64_t batch_workers = std::max<int64_t>(1, budget_ / burst);
    const auto count = static_cast<int64_t>(calls.size());
    while (batches * batch_workers < count) ++batches;
    block.slot = SlotOf(largest);
  }
  block.queued_batches = batches;
  const uint64_t first_tag = calls_.size();
  for (size_t i = 0; i < calls.size(); ++i) {
    calls_.push_back({.block = id,
                      .answer = BufferBytes(calls[i].response_bytes),
                      .estimated = calls[i].estimated,
                      .batch = static_cast<int64_t>(i) % batches});
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
  calls_.push_back({.block = id,
                    .answer = BufferBytes(call.response_bytes),
                    .estimated = call.estimated,
                    .batch = block.queued_batches++});
}

void ScheduleOracle::Readied(uint64_t tag, std::optional<int64_t> response_bytes) {
  Call& call = calls_.at(tag);
  if (call.phase != Call::kSent) return;
  if (response_bytes.has_value()) call.answer = BufferBytes(*response_bytes);
  call.phase = Call::kReady;
  blocks_.at(call.block).ready.push_back(tag);
}

void ScheduleOracle::Progressed(uint64_t tag, int64_t remaining_bytes) {
  Call& call = calls_.at(tag);
  if (call.phase != Call::kInFlight || call.aborted) return;
  call.answer = BufferBytes(remaining_bytes);
  Charge(call);
}

void ScheduleOracle::Finished(uint64_t tag, CallEnd end) {
  Call& call = calls_.at(tag);
  Block& block = blocks_.at(call.block);
  const int64_t on_the_way = call.phase == Call::kSent ? HeaderCost() : call.charged;
  if (call.phase == Call::kReady) Remove(block.ready, tag);
  --block.out;
  call.phase = Call::kEnded;
  call.charged = 0;
  call.stalls_at = TimePoint::max();
  if (end == CallEnd::kAborted && options_.discipline != Discipline::kUnscheduled && on_the_way > 0) {
    draining_.emplace(now_ + DrainTime(), on_the_way);
  }
}

void ScheduleOracle::Cancelled(BlockId id) {
  blocks_.at(id).cancelled = true;
  ExpectAbortsAndEnds(id, true, Action::Kind::kDrop);
}

void ScheduleOracle::CallCancelled(uint64_t tag) {
  const Call& call = calls_.at(tag);
  if (call.phase == Call::kWaiting) {
    ExpectEnd(tag, Action::Kind::kDrop);
  } else if (call.phase != Call::kEnded) {
    ExpectAbort(tag);
  }
}

void ScheduleOracle::ExpectAbortsAndEnds(BlockId id, bool granted_too, Action::Kind end) {
  for (uint64_t tag = 0; tag < calls_.size(); ++tag) {
    const Call& call = calls_[tag];
    if (call.block != id || call.phase == Call::kEnded) continue;
    if (call.phase == Call::kWaiting) {
      ExpectEnd(tag, end);
    } else if (granted_too || call.phase != Call::kInFlight) {
      ExpectAbort(tag);
    }
  }
}

void ScheduleOracle::ExpectAbort(uint64_t tag) {
  Call& call = calls_.at(tag);
  if (std::exchange(call.aborted, true)) return;
  expected_.emplace(Action::Kind::kAbort, tag);
  call.stalls_at = TimePoint::max();
  if (call.phase == Call::kReady) Remove(blocks_.at(call.block).ready, tag);
  if (call.phase == Call::kSent) call.charged = HeaderCost();
  call.phase = Call::kInFlight;
}

void ScheduleOracle::ExpectEnd(uint64_t tag, Action::Kind kind) {
  Call& call = calls_.at(tag);
  Remove(blocks_.at(call.block).waiting, tag);
  call.phase = Call::kEnded;
  expected_.emplace(kind, tag);
}

void ScheduleOracle::Remove(std::deque<uint64_t>& tags, uint64_t tag) {
  Expect(std::erase(tags, tag) == 1, "a call is not where it has to be");
}

void ScheduleOracle::BudgetSet(int64_t bytes) {
  budget_ = bytes;
}

void ScheduleOracle::Apply(const std::vector<Action>& actions, const ScheduleState& state) {
  window_ = state.grant_window;
  stragglers_ = state.straggling_calls;
  for (const Action& action : actions) {
    if (action.kind == Action::Kind::kSend || action.kind == Action::Kind::kSendGranted) {
      Send(action);
    } else if (action.kind == Action::Kind::kGrant) {
      Grant(action.tag);
    } else {
      Expect(expected_.erase({action.kind, action.tag}) == 1,
             absl::StrCat("action ", static_cast<int>(action.kind), " of call ", action.tag, " without a reason"));
    }
    const CallId id = calls_.at(action.tag).id;
    Expect(id == action.call || id == CallId(), "an action names another call");
  }
  Expect(expected_.empty(), "an end, an abort or a stall is missing");
}

void ScheduleOracle::Send(const Action& action) {
  const uint64_t tag = action.tag;
  Call& call = calls_.at(tag);
  Block& block = blocks_.at(call.block);
  for (const auto& [older, other] : blocks_) {
    if (older < call.block) Expect(other.waiting.empty(), "a block was overtaken");
  }
  Expect(!block.waiting.empty() && block.waiting.front() == tag, "calls of a block left out of order");
  Expect(block.deadline > now_ && !block.cancelled, "a call left a block that is over");
  const bool granted = action.kind == Action::Kind::kSendGranted;
  Expect(granted == MayGoGranted(call), "a call left with a grant that had to wait for one, or without");
  Expect(granting() ? granted || MayAsk() : Fits(CostOf(call)), "a call left that did not fit");
  if (options_.discipline == Discipline::kBatches) CheckBatch(call, block);
  if (!block.waiting.empty()) block.waiting.pop_front();
  call.id = action.call;
  call.sent_at = now_;
  ++block.out;
  call.phase = granting() && !granted ? Call::kSent : Call::kInFlight;
  if (call.phase == Call::kInFlight) Charge(call);
  if (granted) call.stalls_at = TimePoint::max();
}

void ScheduleOracle::Grant(uint64_t tag) {
  Call& call = calls_.at(tag);
  Block& block = blocks_.at(call.block);
  for (const auto& [older, other] : blocks_) {
    if (older < call.block) Expect(other.ready.empty(), "a block with a ready answer was overtaken");
  }
  Expect(!block.ready.empty() && block.ready.front() == tag, "ready answers of a block were granted out of order");
  Expect(InFlightBytes() == 0 || InFlightBytes() + CostOf(call) + HeaderBytes() <= budget_,
         "a grant that did not fit beside the headers");
  if (!block.ready.empty()) block.ready.pop_front();
  call.phase = Call::kInFlight;
  Charge(call);
}

// It moves its cost while all that may be in flight drains once.
void ScheduleOracle::Charge(Call& call) {
  call.charged = CostOf(call);
  if (!granting()) return;
  int64_t rounds = call.answer / call.charged;
  if (rounds * call.charged < call.answer) ++rounds;
  const auto rtt = absl::ToChronoNanoseconds(options_.profile.propagation_rtt);
  const auto round = rtt + std::max(budget_, call.charged) * byte_time_;
  call.stalls_at = now_ + absl::ToChronoNanoseconds(options_.stall_timeout) + rounds * round;
}

void ScheduleOracle::CheckBatch(const Call& call, Block& block) {
  Expect(CallsIn(Call::kInFlight) == block.out, "two blocks were on the link");
  const bool opens_slot = call.batch != block.last_batch;
  Expect(!opens_slot || now_ >= block.earliest_slot, "two batches met");
  // Lateness within the jitter does not move the slots; more does. When the first of them began is not known here, only
  // that it was not later than now.
  block.earliest_slot = now_ - jitter_ + block.slot;
  if (opens_slot) block.latest_slot = (block.last_batch < 0 ? now_ : block.latest_slot) + block.slot;
  block.latest_slot = std::max(block.latest_slot, block.earliest_slot);
  block.last_batch = call.batch;
}

void ScheduleOracle::End(const ScheduleState& state, TimePoint next_timer) {
  std::erase_if(blocks_, [](const auto& entry) { return entry.second.waiting.empty() && entry.second.out == 0; });
  CheckIdle();
  CheckState(state);
  CheckTimer(next_timer);
}

// What still waits has a reason to.
void ScheduleOracle::CheckIdle() {
  bool first_waiting = true;
  bool first_ready = true;
  for (const auto& [id, block] : blocks_) {
    if (!block.ready.empty() && std::exchange(first_ready, false)) {
      const int64_t cost = CostOf(calls_.at(block.ready.front()));
      const int64_t reserve = std::max(HeaderBytes(), (window_ + stragglers_) * HeaderCost());
      Expect(InFlightBytes() > 0 && InFlightBytes() + cost + reserve > budget_, "an answer waits for nothing");
    }
    if (block.waiting.empty()) continue;
    Expect(block.deadline > now_ && !block.cancelled, "a call waits in a block that is over");
    if (!std::exchange(first_waiting, false)) continue;
    const Call& head = calls_.at(block.waiting.front());
    if (granting() ? !MustAsk() && !MayGoGranted(head) : !Fits(CostOf(head))) continue;
    const bool not_its_turn = CallsIn(Call::kInFlight) != block.out;
    const bool not_its_slot = head.batch != block.last_batch && now_ < block.latest_slot;
    Expect(options_.discipline == Discipline::kBatches && (not_its_turn || not_its_slot), "a call waits for nothing");
  }
}

void ScheduleOracle::CheckState(const ScheduleState& state) {
  int64_t waiting = 0;
  for (const auto& [id, block] : blocks_) waiting += static_cast<int64_t>(block.waiting.size());
  const auto submitted = static_cast<int64_t>(calls_.size());
  const int64_t ungranted = CallsIn(Call::kSent) + CallsIn(Call::kReady);
  Expect(state.submitted_calls == submitted, "submitted_calls");
  Expect(state.waiting_calls == waiting, "waiting_calls");
  Expect(state.ungranted_calls == ungranted, "ungranted_calls");
  Expect(state.in_flight_calls == CallsIn(Call::kInFlight), "in_flight_calls");
  Expect(state.ended_calls == submitted - waiting - ungranted - state.in_flight_calls, "ended_calls");
  Expect(state.blocks == static_cast<int64_t>(blocks_.size()), "blocks");
  Expect(state.in_flight_bytes == InFlightBytes(),
         absl::StrCat("in_flight_bytes ", state.in_flight_bytes, " instead of ", InFlightBytes()));
  CheckWindow(state);
}

void ScheduleOracle::CheckWindow(const ScheduleState& state) {
  if (!granting()) {
    Expect(state.grant_window == 0 && state.straggling_calls == 0, "a window without grants");
    return;
  }
  const int64_t most = std::max<int64_t>(budget_ / HeaderCost() / 3, 1);
  Expect(state.grant_window <= most && state.grant_window >= std::min<int64_t>(most, 4), "grant_window");
  int64_t late = 0;
  for (const Call& call : calls_) late += call.phase == Call::kSent && call.sent_at + DrainTime() <= now_;
  Expect(state.straggling_calls >= 0 && state.straggling_calls <= late, "straggling_calls");
}

void ScheduleOracle::CheckTimer(TimePoint next_timer) {
  Expect(next_timer > now_, "the timer does not advance");
  TimePoint latest = draining_.empty() ? TimePoint::max() : draining_.begin()->first;
  for (const Call& call : calls_) latest = std::min(latest, call.stalls_at);
  bool waits = false;
  for (const auto& [id, block] : blocks_) {
    const bool ungranted = std::any_of(calls_.begin(), calls_.end(), [id = id](const Call& call) {
      return call.block == id && call.phase < Call::kInFlight;
    });
    if (ungranted) latest = std::min(latest, block.deadline);
    waits = waits || !block.waiting.empty();
  }
  Expect(next_timer <= latest, "the timer misses a deadline, a stall or a drained call");
  const bool for_stragglers = granting() && waits && CallsIn(Call::kReady) == 0 && CallsIn(Call::kSent) > stragglers_;
  Expect(!for_stragglers || next_timer < TimePoint::max(), "the timer misses the stragglers");
  const Block* block = WaitsForSlot();
  Expect(next_timer == latest || block != nullptr || for_stragglers, "a timer for nothing");
  // A call that does not fit may have had its slot, and then waits without a timer.
  if (block == nullptr || !Fits(CostOf(calls_.at(block->waiting.front())))) return;
  Expect(next_timer <= block->latest_slot, "the timer misses a slot");
}

// The block whose next batch may still wait for its slot; null when there is none.
const ScheduleOracle::Block* ScheduleOracle::WaitsForSlot() const {
  const auto waits = [](const auto& entry) { return !entry.second.waiting.empty(); };
  const auto first = std::find_if(blocks_.begin(), blocks_.end(), waits);
  if (options_.discipline != Discipline::kBatches || first == blocks_.end()) return nullptr;
  const Block& block = first->second;
  const bool its_turn = CallsIn(Call::kInFlight) == block.out && block.last_batch >= 0;
  const bool opens_slot = calls_.at(block.waiting.front()).batch != block.last_batch;
  return its_turn && opens_slot && block.latest_slot > now_ ? &block : nullptr;
}

void ScheduleOracle::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = absl::StrCat(what, ", at ", now_.time_since_epoch().count(), " ns");
}

void ScheduleOracle::Expect(bool holds, const std::string& what) {
  if (!holds) Fail(what);
}

}  // namespace sluice
