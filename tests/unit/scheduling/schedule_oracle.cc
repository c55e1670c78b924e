#include "tests/unit/scheduling/schedule_oracle.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace sluice {
namespace {

int64_t BufferOf(const LinkProfile& profile) {
  return profile.buffer_bytes > 0 ? profile.buffer_bytes : profile.buffer_packets * profile.frame_bytes;
}

}  // namespace

ScheduleOracle::ScheduleOracle(const ScheduleOptions& options, std::chrono::nanoseconds byte_time,
                               std::function<WorkerLoad(uint32_t)> load)
    : options_(options),
      byte_time_(byte_time),
      jitter_(absl::ToChronoNanoseconds(options.profile.timer_jitter)),
      buffer_(BufferOf(options.profile)),
      budget_(StartingBudget()),
      classes_(options.class_count()),
      load_(std::move(load)) {}

void ScheduleOracle::Begin(TimePoint now) {
  now_ = std::max(now_, now);
  draining_.erase(draining_.begin(), draining_.upper_bound(now_));
  for (uint64_t tag = 0; tag < calls_.size(); ++tag) {
    Call& call = calls_[tag];
    if (call.stalls_at > now_) continue;
    call.stalls_at = TimePoint::max();
    if (call.times_early) {
      call.late = true;
      early_debt_[HeaderWorker(call)] = 256;
    } else {
      call.stalled = true;
      StopWaiting(tag);
      expected_.emplace(Action::Kind::kStall, tag);
    }
    Charge(call, false);
  }
  ExpectExpiries();
}

void ScheduleOracle::ExpectExpiries() {
  for (const auto& [id, block] : blocks_) {
    if (block.deadline <= now_) ExpectAbortsAndEnds(id, false, Action::Kind::kExpire);
  }
}

void ScheduleOracle::Submitted(BlockId id, const std::vector<CallRequest>& calls, const std::vector<CallId>& ids,
                               TimePoint deadline, bool ahead, size_t traffic_class) {
  Expect(blocks_.empty() || blocks_.rbegin()->first < id, "a block id went back");
  Block& block = blocks_[id];
  block.since = now_;
  block.deadline = deadline;
  block.ahead = ahead;
  block.traffic_class = traffic_class;
  block.retry = ahead && calls.front().retry;
  int64_t batches = 1;
  if (batched() && !ahead) {
    int64_t largest = 1;
    for (const CallRequest& call : calls) largest = std::max(largest, call.response_bytes);
    batches = BatchesOf(std::ssize(calls), largest);
    block.slot = SlotOf(largest);
  }
  block.queued_batches = batches;
  const uint64_t first_tag = calls_.size();
  for (size_t i = 0; i < calls.size(); ++i) {
    calls_.push_back({.block = id,
                      .id = ids[i],
                      .worker = ahead ? 0 : calls[i].worker,
                      .expected = std::max<int64_t>(calls[i].response_bytes, 1),
                      .may_idle = calls[i].may_idle,
                      .batch = static_cast<int64_t>(i) % batches,
                      .phase = calls[i].parked ? Call::kParked : Call::kWaiting});
    block.parked += calls[i].parked ? 1 : 0;
  }
  for (int64_t batch = 0; batch < batches; ++batch) {
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls_[first_tag + i].batch == batch && !calls[i].parked) block.waiting.push_back(first_tag + i);
    }
  }
}

void ScheduleOracle::Added(BlockId block_id, CallId id, const CallRequest& call) {
  Block& block = blocks_.at(block_id);
  if (batched()) block.slot = std::max(block.slot, SlotOf(call.response_bytes));
  block.waiting.push_back(calls_.size());
  calls_.push_back({.block = block_id,
                    .id = id,
                    .worker = call.worker,
                    .expected = std::max<int64_t>(call.response_bytes, 1),
                    .may_idle = call.may_idle,
                    .batch = block.queued_batches++});
}

void ScheduleOracle::Unparked(uint64_t tag) {
  Call& call = calls_.at(tag);
  if (call.phase != Call::kParked) return;
  Block& block = blocks_.at(call.block);
  call.phase = Call::kWaiting;
  call.batch = block.queued_batches++;
  block.waiting.push_back(tag);
  --block.parked;
}

void ScheduleOracle::Unsent(uint64_t tag) {
  Call& call = calls_.at(tag);
  if (call.phase < Call::kSent || call.phase == Call::kEnded) return;
  Block& block = blocks_.at(call.block);
  StopWaiting(tag);
  const bool aborted = call.aborted;
  call = {.block = call.block,
          .id = call.id,
          .worker = call.worker,
          .expected = call.expected,
          .may_idle = call.may_idle,
          .batch = call.batch,
          .phase = aborted ? Call::kInFlight : Call::kParked,
          .aborted = aborted};
  NoteOwing();
  if (aborted) return;
  --block.out;
  ++block.parked;
  GoneFrom(block);
  ExpectExpiries();
}

void ScheduleOracle::Hear(uint32_t worker) {
  const auto owed_since = owed_since_.find(worker);
  if (owed_since == owed_since_.end()) return;
  const auto pause = std::chrono::milliseconds(190) + absl::ToChronoNanoseconds(options_.profile.propagation_rtt);
  if (now_ - std::exchange(owed_since->second, now_) >= pause) ++pauses_[worker];
}

void ScheduleOracle::Readied(uint64_t tag, int64_t remaining_bytes, int64_t withheld_bytes) {
  Call& call = calls_.at(tag);
  if (call.phase < Call::kSent || call.phase == Call::kEnded || call.aborted) return;
  any_ready_ = true;
  if (!std::exchange(call.ready, true)) {
    Hear(call.worker);
    ++blocks_.at(call.block).known;
    int64_t& debt = early_debt_[HeaderWorker(call)];
    if (debt > 0 && now_ - call.sent_at <= absl::ToChronoNanoseconds(options_.stall_timeout)) --debt;
  }
  ObserveHeaders(call);
  call.remaining = remaining_bytes;
  if (call.unbounded) {
    call.outstanding = remaining_bytes + withheld_bytes;
    Charge(call, false);
  }
  if (call.phase == Call::kSent) call.phase = Call::kReady;
  if (call.phase == Call::kReady && (Rest(call) == 0 || call.unwanted)) call.phase = Call::kInFlight;
  const auto is_it = [tag](const Turn& turn) { return turn.tag == tag; };
  if (std::none_of(turns_.begin(), turns_.end(), is_it)) call.message = ++messages_;
  Wait(tag);
}

void ScheduleOracle::Unwanted(uint64_t tag) {
  Call& call = calls_.at(tag);
  if (call.phase < Call::kSent || call.phase == Call::kEnded || call.aborted) return;
  call.unwanted = true;
  if (call.phase == Call::kReady) call.phase = Call::kInFlight;
  StopWaiting(tag);
  Wait(tag);
}

void ScheduleOracle::Received(uint64_t tag, int64_t bytes) {
  Call& call = calls_.at(tag);
  if (call.phase < Call::kSent || call.phase == Call::kEnded) return;
  Hear(call.worker);
  const int64_t cost_before = CostOf(call.outstanding);
  call.outstanding -= bytes;
  call.received += bytes;
  if (!blocks_.at(call.block).ahead) classes_[ClassOf(call)].received += cost_before - CostOf(call.outstanding);
  call.early = std::max<int64_t>(call.early - bytes, 0);
  call.remaining = std::max<int64_t>(call.remaining - bytes, 0);
  if (call.outstanding <= 0) call.stalled = false;
  if (call.early == 0) call.late = false;
  Charge(call, true);
  Wait(tag);
}

void ScheduleOracle::Finished(uint64_t tag, CallEnd end) {
  Call& call = calls_.at(tag);
  Block& block = blocks_.at(call.block);
  ObserveHeaders(call);
  const bool header_may_come = call.phase == Call::kSent && !call.straggles;
  const int64_t on_the_way = ChargeOf(call) + (header_may_come ? call.header_room + call.large_room : 0);
  block.claimed += CostOf(Claimed(call));
  if (!call.ready) ++block.known;
  StopWaiting(tag);
  --block.out;
  call.phase = Call::kEnded;
  ++ended_[call.worker];
  NoteOwing();
  call.stalls_at = TimePoint::max();
  if (end == CallEnd::kAborted && on_the_way > 0) draining_.emplace(now_ + DrainTime(), on_the_way);
  GoneFrom(block);
}

// In batches, the turn of a block ends when none of its calls waits or is out.
void ScheduleOracle::GoneFrom(Block& block) {
  if (!block.waiting.empty() || block.out > 0) return;
  block.has_turn = false;
  block.last_batch = -1;
  block.earliest_slot = block.latest_slot = TimePoint::min();
}

void ScheduleOracle::GiveTurn() {
  const std::optional<Waiting> first = FirstWaiting(0);
  const auto has_turn = [](const auto& entry) { return entry.second.has_turn; };
  if (!batched() || !first.has_value() || RoomIsMade() || std::any_of(blocks_.begin(), blocks_.end(), has_turn)) return;
  blocks_.at(first->block).has_turn = true;
}

void ScheduleOracle::Cancelled(BlockId id) {
  blocks_.at(id).cancelled = true;
  ExpectAbortsAndEnds(id, true, Action::Kind::kDrop);
}

void ScheduleOracle::CallCancelled(uint64_t tag) {
  const Call& call = calls_.at(tag);
  if (call.phase <= Call::kWaiting) {
    ExpectEnd(tag, Action::Kind::kDrop);
  } else if (call.phase != Call::kEnded) {
    ExpectAbort(tag);
  }
}

void ScheduleOracle::ExpectAbortsAndEnds(BlockId id, bool granted_too, Action::Kind end) {
  for (uint64_t tag = 0; tag < calls_.size(); ++tag) {
    const Call& call = calls_[tag];
    if (call.block != id || call.phase == Call::kEnded) continue;
    if (call.phase <= Call::kWaiting) {
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
  StopWaiting(tag);
  if (call.phase == Call::kSent && !call.straggles) {
    draining_.emplace(now_ + DrainTime(), call.header_room + call.large_room);
  }
  call.phase = Call::kInFlight;
  NoteOwing();
}

void ScheduleOracle::ExpectEnd(uint64_t tag, Action::Kind kind) {
  Call& call = calls_.at(tag);
  Block& block = blocks_.at(call.block);
  if (call.phase == Call::kWaiting) {
    Remove(block.waiting, tag);
  } else {
    --block.parked;
  }
  call.phase = Call::kEnded;
  expected_.emplace(kind, tag);
  GoneFrom(block);
}

void ScheduleOracle::Remove(std::deque<uint64_t>& tags, uint64_t tag) {
  Expect(std::erase(tags, tag) == 1, "a call is not where it has to be");
}

int64_t ScheduleOracle::StartingBudget() const {
  return limited() ? options_.budget_bytes.value_or(buffer_) : std::numeric_limits<int64_t>::max();
}

// Nothing that was granted is revoked, and each call is charged for what it was granted.
void ScheduleOracle::PolicySet(SchedulePolicy policy) {
  const bool was_limited = limited();
  if (std::exchange(options_.policy, policy) == policy) return;
  if (limited() != was_limited) budget_ = StartingBudget();
  for (ClassRecord& record : classes_) record.overtook_at_least = 0;
  contests_.clear();
  for (uint64_t tag = 0; tag < calls_.size(); ++tag) {
    Call& call = calls_[tag];
    if (!granting() && (call.phase == Call::kSent || call.phase == Call::kReady)) {
      call.phase = Call::kInFlight;
      call.straggles = false;
    }
    if (call.phase != Call::kInFlight) continue;
    Charge(call, false);
    Wait(tag);
  }
  for (auto& [id, block] : blocks_) DealAgain(block);
}

// Calls that wait keep their order, and each batch has consecutive calls.
void ScheduleOracle::DealAgain(Block& block) {
  block.has_turn = false;
  block.last_batch = -1;
  block.earliest_slot = block.latest_slot = TimePoint::min();
  if (!batched() || block.ahead || block.waiting.empty()) return;
  int64_t largest = 1;
  for (const uint64_t tag : block.waiting) largest = std::max(largest, calls_.at(tag).expected);
  const auto count = std::ssize(block.waiting);
  const int64_t batches = BatchesOf(count, largest);
  const int64_t batch_calls = (count + batches - 1) / batches;
  block.slot = SlotOf(largest);
  block.queued_batches = batches;
  for (int64_t i = 0; i < count; ++i) calls_.at(block.waiting[i]).batch = i / batch_calls;
}

int64_t ScheduleOracle::BatchesOf(int64_t calls, int64_t largest) const {
  const int64_t burst = Packets(largest) * options_.profile.frame_bytes;
  const int64_t batch_workers = std::max<int64_t>(1, budget_ / burst);
  return (calls + batch_workers - 1) / batch_workers;
}

void ScheduleOracle::BudgetSet(int64_t bytes) {
  if (!limited()) return;
  budget_ = bytes;
  for (ClassRecord& record : classes_) record.overtook_at_least = 0;
}

void ScheduleOracle::Apply(const std::vector<Action>& actions, const ScheduleState& state) {
  NoteShares();
  bool marked = false;
  for (const Action& action : actions) {
    const bool admitted = action.kind == Action::Kind::kSend || action.kind == Action::Kind::kGrant;
    if (admitted && !std::exchange(marked, true)) MarkStragglers(state);
    if (action.kind == Action::Kind::kSend) {
      Send(action);
    } else if (action.kind == Action::Kind::kGrant) {
      Grant(action);
    } else {
      Expect(expected_.erase({action.kind, action.tag}) == 1,
             absl::StrCat("action ", static_cast<int>(action.kind), " of call ", action.tag, " without a reason"));
    }
    Expect(calls_.at(action.tag).id == action.call, "an action names another call");
    NoteLateWorkers();
  }
  if (!marked) MarkStragglers(state);
  GiveTurn();
  Expect(expected_.empty(), "an end, an abort or a stall is missing");
}

void ScheduleOracle::Send(const Action& action) {
  const uint64_t tag = action.tag;
  Call& call = calls_.at(tag);
  Block& block = blocks_.at(call.block);
  const std::optional<Waiting> first = block.ahead ? FirstAhead() : FirstWaiting(block.traffic_class);
  if (granting() && !block.ahead) {
    CheckRequestOrder(tag);
  } else if (block.ahead || (!share_fell_ && !OldestMayBeDue(block.traffic_class))) {
    Expect(first.has_value() && first->block == call.block, "a block was overtaken");
    Expect(first.has_value() && first->tag == tag, "calls of a block left out of order");
  } else if (!share_fell_ && first.has_value() && first->tag != tag) {
    const Waiting oldest = *FirstWaiting(block.traffic_class, true);
    Expect(oldest.block == call.block || MayBeHeld(oldest), "the oldest block was overtaken");
  }
  Expect(block.ahead || !RoomIsMade(), "a handshake was overtaken");
  Expect(block.deadline > now_ && !block.cancelled, "a call left a block that is over");
  Expect(MayLeaveWith(call, block.ahead, action.bytes),
         absl::StrCat("call ", tag, " left with ", action.bytes, " bytes that did not fit"));
  Expect(share_fell_ || Open(call), "a request left to a full worker");
  Expect(block.ahead || action.bytes == 0 || PacerOpen(), "a request left with bytes before their time");
  if (action.bytes > 0) Pace(CostOf(std::min(action.bytes, call.expected)));
  GiveTurn();
  if (batched() && !block.ahead) CheckBatch(call, block);
  if (action.bytes > 0 || !granting()) NoteGranted(tag, CostOf(std::min(action.bytes, call.expected)));
  Remove(block.waiting, tag);
  call.sent_at = now_;
  call.header_room = UsualHeaderCost();
  call.large_room = LargeRoomOf(call);
  call.kept_from_early = early_debt_[HeaderWorker(call)] > 0;
  call.unbounded = !limited();
  ++block.out;
  ++block.sent;
  if (granting() && action.bytes == 0) {
    call.phase = Call::kSent;
    return;
  }
  call.phase = Call::kInFlight;
  call.outstanding = std::min(action.bytes, call.expected);
  if (granting() && !block.ahead) call.early = call.outstanding;
  Charge(call, false);
}

// With grants: the first request by the order of blocks, or the one of the oldest block. Calls of workers that share
// room may be held. A block that is the oldest for certain is overtaken by three requests at a time, and by some more
// while calls of it are held.
void ScheduleOracle::CheckRequestOrder(uint64_t tag) {
  const Call& call = calls_.at(tag);
  const size_t traffic_class = ClassOf(call);
  if (share_fell_) return;
  const std::optional<Waiting> first = FirstWaiting(traffic_class, false, true);
  const std::optional<Waiting> oldest = FirstWaiting(traffic_class, true, true);
  const bool in_order = !first.has_value() || first->tag == tag || oldest->tag == tag || SharesRoom(call) ||
                        MayBeHeld(*first) || MayBeHeld(*oldest);
  Expect(in_order, "a request was overtaken");
  const auto waits = [&](const auto& entry) {
    return !entry.second.ahead && !entry.second.waiting.empty() && entry.second.traffic_class == traffic_class;
  };
  const auto longest = std::find_if(blocks_.begin(), blocks_.end(), waits);
  const bool certain =
      oldest.has_value() && longest->first == oldest->block && longest->second.waiting.front() == oldest->tag;
  int64_t& overtook = classes_[traffic_class].overtook_requests;
  const bool overtakes = certain && oldest->block != call.block && RequestRankOf(oldest->block) < BlockOrder::kNotSmall;
  if (!overtakes) overtook = 0;
  if (overtakes) Expect(++overtook <= 8 || MayBeHeld(*oldest), "the oldest request was overtaken too often");
}

void ScheduleOracle::Grant(const Action& action) {
  Call& call = calls_.at(action.tag);
  Expect(!RoomIsMade(), "a handshake was overtaken");
  if (call.phase == Call::kSent) return GrantEarly(action);
  const size_t traffic_class = ClassOf(call);
  Expect(share_fell_ || IsNextTurn(action.tag), absl::StrCat("call ", action.tag, " was granted out of turn"));
  const std::optional<Waiting> waiting = FirstWaiting(traffic_class);
  if (waiting.has_value() && !granting() && !batched() && !OldestMayBeDue(traffic_class)) {
    const bool comes_first = PlaceOf(waiting->block) < PlaceOf(call.block) && !call.unwanted;
    Expect(share_fell_ || !comes_first || !MustLeave(calls_.at(waiting->tag)),
           "a request of a smaller block was overtaken");
  }
  Expect(share_fell_ || action.bytes == PartOf(Rest(call), call),
         absl::StrCat("call ", action.tag, " was granted ", action.bytes, " of ", Rest(call), " bytes"));
  Expect(share_fell_ || LeavesRoomToHeavier(call), "a grant that leaves no room to heavier classes");
  Expect(MayGrant(call, action.bytes, WantedHeaderBytes().value_or(0)),
         "a grant that did not fit beside the headers, or came before its time");
  Pace(CostOf(call.outstanding + action.bytes) - CostOf(call.outstanding));
  NoteGranted(action.tag, CostOf(call.outstanding + action.bytes) - CostOf(call.outstanding));
  StopWaiting(action.tag);
  call.phase = Call::kInFlight;
  call.outstanding += action.bytes;
  Charge(call, false);
  Wait(action.tag);
}

// Before the response is ready: like a request, for the oldest sent call that does not straggle.
void ScheduleOracle::GrantEarly(const Action& action) {
  Call& call = calls_.at(action.tag);
  const auto older = [&](const Call& other) {
    return other.phase == Call::kSent && !other.straggles && other.sent_at < call.sent_at && !other.late_worker &&
           !other.kept_from_early && !other.may_idle && !other.unwanted && ClassOf(other) == ClassOf(call);
  };
  Expect(granting() && any_ready_ && !call.straggles && std::none_of(calls_.begin(), calls_.end(), older) &&
             MayGoEarly(call, action.bytes),
         absl::StrCat("call ", action.tag, " was granted ", action.bytes, " bytes before it was ready"));
  Expect(PacerOpen(), "early bytes before their time");
  Pace(CostOf(std::min(action.bytes, call.expected)));
  NoteGranted(action.tag, CostOf(action.bytes));
  call.phase = Call::kInFlight;
  call.outstanding = call.early = std::min(action.bytes, call.expected);
  Charge(call, false);
}

// While the same response is the oldest and may be granted, others get one budget of bytes, and what does not fit it
// exactly.
void ScheduleOracle::NoteGranted(uint64_t tag, int64_t cost) {
  const Call& call = calls_.at(tag);
  if (blocks_.at(call.block).ahead) return;
  NoteContests(tag, cost);
  const size_t traffic_class = ClassOf(call);
  ClassRecord& record = classes_[traffic_class];
  std::vector<Turn> turns = OpenTurns(traffic_class);
  // The worker of this call was open then. At the end of the event it may not be.
  const auto is_own = [tag](const Turn& turn) { return turn.tag == tag; };
  const auto own = std::find_if(turns_.begin(), turns_.end(), is_own);
  if (own != turns_.end() && std::none_of(turns.begin(), turns.end(), is_own)) turns.push_back(*own);
  const Turn* const oldest = OldestTurn(turns);
  const bool overtakes = oldest != nullptr && oldest->tag != tag && calls_.at(oldest->tag).block <= call.block;
  if (!overtakes || record.overtaken != oldest->tag) record.overtook_at_least = 0;
  record.overtaken = overtakes ? std::optional(oldest->tag) : std::nullopt;
  if (overtakes) {
    Expect(share_fell_ || record.overtook_at_least <= budget_, "the oldest response was overtaken too often");
    record.overtook_at_least += cost;
  }
  const auto may_be_overtaken = [&](const auto& entry) {
    return !granting() && !entry.second.ahead && entry.first < call.block && !entry.second.waiting.empty() &&
           entry.second.traffic_class == traffic_class;
  };
  const bool may_overtake = overtakes || std::any_of(blocks_.begin(), blocks_.end(), may_be_overtaken) ||
                            std::any_of(turns_.begin(), turns_.end(), [&](const Turn& turn) {
                              const Call& other = calls_.at(turn.tag);
                              return turn.tag != tag && other.block <= call.block && ClassOf(other) == traffic_class;
                            });
  record.overtook_at_most = may_overtake ? record.overtook_at_most + cost : 0;
}

// While two classes both wait for bytes, what they get by weight differs by at most one grant of each.
void ScheduleOracle::NoteContests(uint64_t tag, int64_t cost) {
  const size_t traffic_class = ClassOf(calls_.at(tag));
  const bool out_of_turn = calls_.at(tag).unwanted || share_fell_;
  classes_[traffic_class].most_cost = std::max(classes_[traffic_class].most_cost, cost);
  const auto most = [this](size_t of) { return static_cast<double>(classes_[of].most_cost) / WeightOf(of); };
  for (size_t a = 0; a < classes_.size(); ++a) {
    for (size_t b = a + 1; b < classes_.size(); ++b) {
      Contest& contest = contests_[{a, b}];
      const bool takes_part = traffic_class == a || traffic_class == b;
      if (!UsesTurn(a) || !UsesTurn(b) || share_fell_ || (takes_part && out_of_turn)) {
        contest = {};
      } else if (takes_part) {
        const double by_weight = static_cast<double>(cost) / WeightOf(traffic_class);
        contest.lead += traffic_class == a ? by_weight : -by_weight;
        contest.most = std::max(contest.most, contest.lead);
        contest.least = std::min(contest.least, contest.lead);
      }
      const double range = contest.most - contest.least;
      Expect(range <= (most(a) + most(b)) * (1 + 1e-9), absl::StrCat("class ", a, " and ", b, " did not share"));
    }
  }
}

// A call waits in the queue if it has a rest and has not stalled.
void ScheduleOracle::Wait(uint64_t tag) {
  const Call& call = calls_.at(tag);
  if (Rest(call) == 0 || call.aborted || call.stalled) return StopWaiting(tag);
  if (std::any_of(turns_.begin(), turns_.end(), [&](const Turn& turn) { return turn.tag == tag; })) return;
  turns_.push_back({.tag = tag, .rank = Ranked() ? RankOf(Rest(call)) : 0, .since = now_});
}

void ScheduleOracle::StopWaiting(uint64_t tag) {
  std::erase_if(turns_, [tag](const Turn& turn) { return turn.tag == tag; });
}

// Starts the stall timer: other calls get the charge after one drain of all bytes in flight. The timer of early bytes
// ends when other bytes are charged.
void ScheduleOracle::Charge(Call& call, bool progress) {
  const int64_t charge = ChargeOf(call);
  const bool times_early = charge <= (call.late ? 0 : CostOf(std::min(call.early, call.outstanding)));
  const bool other_timer = std::exchange(call.times_early, times_early) != times_early;
  if (call.aborted || !limited() || charge == 0) {
    call.stalls_at = TimePoint::max();
  } else if (progress || other_timer || call.stalls_at == TimePoint::max()) {
    const auto rtt = absl::ToChronoNanoseconds(options_.profile.propagation_rtt);
    const auto round = rtt + std::max(budget_, charge) * byte_time_;
    call.stalls_at = now_ + absl::ToChronoNanoseconds(options_.stall_timeout) + round;
  }
}

void ScheduleOracle::CheckBatch(const Call& call, Block& block) {
  Expect(block.has_turn, "two blocks were on the link");
  const bool opens_slot = call.batch != block.last_batch;
  Expect(!opens_slot || now_ >= block.earliest_slot, "two batches met");
  // Lateness within the jitter does not move the slots; more does. The exact beginning of the first slot is unknown
  // here. It was not later than now.
  block.earliest_slot = now_ - jitter_ + block.slot;
  if (opens_slot) block.latest_slot = (block.last_batch < 0 ? now_ : block.latest_slot) + block.slot;
  block.latest_slot = std::max(block.latest_slot, block.earliest_slot);
  block.last_batch = call.batch;
}

void ScheduleOracle::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = absl::StrCat(what, ", at ", now_.time_since_epoch().count(), " ns");
}

void ScheduleOracle::Expect(bool holds, const std::string& what) {
  if (!holds) Fail(what);
}

}  // namespace sluice
