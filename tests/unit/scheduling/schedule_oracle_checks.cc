// The checks of the oracle after an event: that no call waits without a reason, the counts, and the timer.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/unit/scheduling/schedule_oracle.h"

namespace sluice {

void ScheduleOracle::End(const ScheduleState& state, TimePoint next_timer) {
  std::erase_if(blocks_, [](const auto& entry) {
    return entry.second.waiting.empty() && entry.second.parked == 0 && entry.second.out == 0;
  });
  CheckShares();
  CheckLoads(state);
  CheckIdle();
  CheckState(state);
  CheckTimer(next_timer);
}

// The call that was sent first straggles first.
void ScheduleOracle::MarkStragglers(const ScheduleState& state) {
  std::vector<Call*> sent;
  for (Call& call : calls_) {
    if (call.phase == Call::kSent) sent.push_back(&call);
  }
  std::stable_sort(sent.begin(), sent.end(), [](const Call* a, const Call* b) { return a->sent_at < b->sent_at; });
  const auto known = std::count_if(sent.begin(), sent.end(), [](const Call* call) { return call->straggles; });
  Expect(state.straggling_calls >= known, "a straggler is young again");
  for (int64_t i = 0; i < std::min(state.straggling_calls, std::ssize(sent)); ++i) {
    Expect(sent[i]->straggles || sent[i]->sent_at + DrainTime() <= now_, "a call straggles that is not out for long");
    sent[i]->straggles = true;
  }
}

// Records the shares that the schedule has set in this event. CheckShares checks that they are between a packet and the
// budget, and compares the charges of workers.
void ScheduleOracle::NoteShares() {
  share_fell_ = false;
  std::map<uint32_t, double> shares;
  for (const Call& call : calls_) {
    if (call.phase == Call::kEnded || !Bounded(call) || shares.contains(call.worker)) continue;
    const auto share = static_cast<double>(load_(call.worker).share_bytes) / static_cast<double>(budget_);
    const auto before = shares_.find(call.worker);
    shares[call.worker] = share;
    share_fell_ = share_fell_ || (before != shares_.end() && share < before->second);
  }
  shares_ = std::move(shares);
  NoteLateWorkers();
}

void ScheduleOracle::CheckShares() {
  const int64_t packet = CostOf(options_.profile.packet_payload_bytes);
  for (const auto& [worker, share] : shares_) {
    const WorkerLoad load = load_(worker);
    Expect(load.share_bytes >= packet && load.share_bytes <= std::max(budget_, packet), "a share is out of its bounds");
    Expect(load.charged_bytes == WorkerCharge(worker), "the charge of a worker");
  }
  NoteLateWorkers();
}

void ScheduleOracle::CheckLoads(const ScheduleState& state) {
  std::map<uint32_t, WorkerLoad> expected;
  for (const Call& call : calls_) {
    if (call.worker == 0 || call.phase == Call::kEnded) continue;
    WorkerLoad& load = expected[call.worker];
    ++load.calls;
    if (call.phase >= Call::kSent) ++load.out_calls;
    if (call.stalled && call.phase == Call::kInFlight) ++load.stalled_calls;
  }
  NoteOwing();
  int64_t held_calls = 0;
  for (const auto& [worker, counts] : expected) {
    const WorkerLoad load = load_(worker);
    Expect(load.held_calls >= 0 && load.held_calls <= load.calls - load.out_calls, "the held calls of a worker");
    held_calls += load.held_calls;
    Expect(load.owed_bytes == WorkerOwes(worker), "what a worker owes");
    Expect(load.calls == counts.calls, "the calls of a worker");
    Expect(load.out_calls == counts.out_calls, "the calls that are out to a worker");
    Expect(load.stalled_calls == counts.stalled_calls, "the calls that have stalled at a worker");
    Expect(load.ended_calls == ended_[worker], "the calls of a worker that have ended");
    Expect(load.pauses == pauses_[worker], "the pauses of a worker");
    Expect(load.owing_calls == OwingCalls(worker), "the calls of which a worker owes bytes");
    if (load.owing_calls == 0) continue;
    const auto since = owed_since_.try_emplace(worker, now_).first;
    Expect(load.owed_since == since->second, "since when a worker owes");
  }
  Expect(state.held_calls == held_calls, "held_calls");
}

// Checks that each waiting call has a reason to wait.
void ScheduleOracle::CheckIdle() {
  for (const auto& [id, block] : blocks_) {
    if (block.waiting.empty() && block.parked == 0) continue;
    Expect(block.deadline > now_ && !block.cancelled, "a call waits in a block that is over");
  }
  if (const std::optional<Waiting> ahead = FirstAhead()) {
    const Call& call = calls_.at(ahead->tag);
    Expect(!HandshakeHasShare(call) || !HandshakeFits(call), "a handshake waits for nothing");
  }
  if (RoomIsMade()) return;
  if (const std::optional<uint64_t> longest = LongestTurn(); longest.has_value() && OpenTurns().empty()) {
    const Call& call = calls_.at(*longest);
    Expect(!LeavesRoomToHeavier(call) ||
               !MayGrant(call, PartOf(Rest(call), call), WantedHeaderBytes().value_or(YoungHeaderBytes() + budget_)),
           "an answer waits for nothing");
  }
  CheckIdleClasses();
}

// One class has the turn, and its next call does not fit. With grants, requests of other classes need not wait for it.
void ScheduleOracle::CheckIdleClasses() {
  bool any = false;
  bool all_could_go = true;
  for (size_t i = 0; i < classes_.size(); ++i) {
    const std::optional<bool> request_leaves = NextRequestMustLeave(i);
    if (granting() || batched() || !limited()) Expect(!request_leaves.value_or(false), "a call waits for nothing");
    if (!UsesTurn(i)) continue;
    any = true;
    const bool response_goes = NextTurnFits(i).value_or(false);
    const bool request_goes = !granting() && !batched() && request_leaves.value_or(false);
    all_could_go = all_could_go && (response_goes || request_goes);
  }
  Expect(!any || !all_could_go, "each class waits for nothing");
}

std::optional<bool> ScheduleOracle::NextTurnFits(size_t traffic_class) const {
  const std::optional<uint64_t> tag = NextTurn(traffic_class);
  const bool certain = !OldestMayBeDue(traffic_class) || tag == NextTurn(traffic_class, true);
  if (!tag.has_value() || !certain) return std::nullopt;
  const Call& call = calls_.at(*tag);
  if (share_fell_ || !LeavesRoomToHeavier(call)) return std::nullopt;
  return MayGrant(call, PartOf(Rest(call), call), WantedHeaderBytes().value_or(YoungHeaderBytes() + budget_));
}

std::optional<bool> ScheduleOracle::NextRequestMustLeave(size_t traffic_class) const {
  const std::optional<Waiting> first = FirstWaiting(traffic_class);
  if (!first.has_value()) return std::nullopt;
  const bool may_be_oldest = granting() || OldestMayBeDue(traffic_class);
  const bool certain = !may_be_oldest || (FirstWaiting(traffic_class, true)->tag == first->tag && !MayBeHeld(*first));
  if (!certain || SharesRoom(calls_.at(first->tag))) return std::nullopt;
  const Call& head = calls_.at(first->tag);
  const Block& block = blocks_.at(first->block);
  const bool not_its_slot = head.batch != block.last_batch && now_ < block.latest_slot;
  return MustLeave(head) && !(batched() && (!block.has_turn || not_its_slot));
}

void ScheduleOracle::CheckState(const ScheduleState& state) {
  int64_t waiting = 0;
  for (const auto& [id, block] : blocks_) waiting += static_cast<int64_t>(block.waiting.size());
  const int64_t parked = CallsIn(Call::kParked);
  const auto submitted = static_cast<int64_t>(calls_.size());
  const int64_t ungranted = CallsIn(Call::kSent) + CallsIn(Call::kReady);
  Expect(state.submitted_calls == submitted, "submitted_calls");
  Expect(state.waiting_calls == waiting + parked, "waiting_calls");
  Expect(state.parked_calls == parked, "parked_calls");
  Expect(state.ungranted_calls == ungranted, "ungranted_calls");
  Expect(state.in_flight_calls == CallsIn(Call::kInFlight), "in_flight_calls");
  Expect(state.ended_calls == submitted - waiting - parked - ungranted - state.in_flight_calls, "ended_calls");
  Expect(state.blocks == static_cast<int64_t>(blocks_.size()), "blocks");
  Expect(state.in_flight_bytes == InFlightBytes(),
         absl::StrCat("in_flight_bytes ", state.in_flight_bytes, " instead of ", InFlightBytes()));
  CheckStragglers(state);
  Expect(state.ready_bytes == ReadyBytes({}), "ready_bytes");
}

void ScheduleOracle::CheckClasses(const std::vector<TrafficClassState>& classes) {
  for (size_t i = 0; i < classes_.size(); ++i) {
    Expect(classes[i].waiting_calls == WaitingCalls(i), "the waiting calls of a class");
    Expect(classes[i].received_bytes == classes_[i].received, "the received bytes of a class");
    Expect(classes[i].ready_bytes == ReadyBytes({}, i), "the ready bytes of a class");
  }
}

void ScheduleOracle::CheckStragglers(const ScheduleState& state) {
  const int64_t stragglers = std::count_if(
      calls_.begin(), calls_.end(), [](const Call& call) { return call.phase == Call::kSent && call.straggles; });
  Expect(state.straggling_calls == stragglers, "straggling_calls");
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
  const int64_t young = YoungCalls();
  const bool for_stragglers = granting() && young > 0 && (!AnyTurn() ? waits : Alone());
  bool certain = AnyTurn();
  for (size_t i = 0; i < classes_.size(); ++i) certain = certain || FirstWaiting(i, false, true).has_value();
  Expect(!for_stragglers || !certain || next_timer < TimePoint::max(), "the timer misses the stragglers");
  Expect(PacerOpen() || !certain || next_timer <= paced_until_, "the timer misses the pace");
  const Block* block = WaitsForSlot();
  Expect(next_timer == latest || block != nullptr || for_stragglers || AnyTurn() || waits, "a timer for nothing");
  // A call that does not fit, or is behind a handshake, may have had its slot. It then waits without a timer.
  if (block == nullptr || RoomIsMade() || !MustLeave(calls_.at(block->waiting.front()))) return;
  Expect(next_timer <= block->latest_slot, "the timer misses a slot");
}

// Returns the block whose next batch may still wait for its slot, or null.
const ScheduleOracle::Block* ScheduleOracle::WaitsForSlot() const {
  if (!batched() || !AnyWaiting()) return nullptr;
  for (const auto& [id, block] : blocks_) {
    if (block.ahead || block.waiting.empty() || block.last_batch < 0) continue;
    const bool opens_slot = calls_.at(block.waiting.front()).batch != block.last_batch;
    if (opens_slot && block.latest_slot > now_) return &block;
  }
  return nullptr;
}

}  // namespace sluice
