// The rules of the oracle: costs, times, and which calls may leave.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "absl/time/time.h"
#include "tests/unit/scheduling/schedule_oracle.h"

namespace sluice {

int64_t ScheduleOracle::CallsIn(int phase) const {
  return std::count_if(calls_.begin(), calls_.end(), [phase](const Call& call) { return call.phase == phase; });
}

bool ScheduleOracle::AnyStalled() const {
  return std::any_of(calls_.begin(), calls_.end(), [](const Call& call) { return call.stalled; });
}

bool ScheduleOracle::AnyUnbounded() const {
  return std::any_of(calls_.begin(), calls_.end(),
                     [](const Call& call) { return call.unbounded && call.phase == Call::kInFlight; });
}

int64_t ScheduleOracle::Rest(const Call& call) {
  return call.ready ? std::max<int64_t>(call.remaining - call.outstanding, 0) : 0;
}

// Returns whether a call in flight may only send headers: no bytes are expected.
bool ScheduleOracle::Silent(const Call& call) const {
  const bool answers = call.phase == Call::kInFlight && !call.aborted && !blocks_.at(call.block).ahead;
  return granting() && answers && call.remaining == 0 && Rest(call) == 0;
}

int64_t ScheduleOracle::ChargeOf(const Call& call) const {
  if (call.phase != Call::kInFlight) return 0;
  return CostOf(call.stalled ? std::min(call.early, call.outstanding) : call.outstanding);
}

int64_t ScheduleOracle::InFlightBytes() const {
  int64_t bytes = 0;
  for (const Call& call : calls_) bytes += ChargeOf(call);
  for (const auto& [until, cost] : draining_) bytes += cost;
  return bytes;
}

// A paced link may have C·R in addition to the budget on the way, and at most ten budgets. Less after losses: nothing
// below half of the first budget.
int64_t ScheduleOracle::PipeBytes() const {
  const auto first_budget = static_cast<double>(options_.budget_bytes.value_or(buffer_));
  const double trust = std::clamp(2 * static_cast<double>(budget_) / first_budget - 1, 0.0, 1.0);
  const double pipe =
      trust * options_.profile.capacity_bytes_per_second * absl::ToDoubleSeconds(options_.profile.propagation_rtt);
  const bool paced = options_.paced && limited() && 3 * pipe > 2 * static_cast<double>(budget_);
  return paced ? static_cast<int64_t>(std::min(pipe, 10.0 * static_cast<double>(budget_))) : 0;
}

int64_t ScheduleOracle::PartCost() const {
  const int64_t window = 10 * CostOf(options_.profile.packet_payload_bytes);
  return PipeBytes() > 0 ? std::min(budget_ / 3, window) : budget_ / 3;
}

// Bytes are granted at 0.97 C, with half of the budget as tolerance.
void ScheduleOracle::Pace(int64_t cost) {
  if (PipeBytes() == 0) return;
  const auto time = [this](int64_t bytes) {
    return std::chrono::nanoseconds(std::llround(static_cast<double>(bytes * byte_time_.count()) / 0.97));
  };
  paced_until_ = std::max(paced_until_, now_ - time(budget_ / 2)) + time(cost);
}

int64_t ScheduleOracle::EarlyBytes() const {
  int64_t bytes = 0;
  for (const Call& call : calls_) {
    if (call.phase == Call::kInFlight) bytes += CostOf(std::min(call.early, call.outstanding));
  }
  return bytes;
}

int64_t ScheduleOracle::HandshakeBytes() const {
  int64_t bytes = 0;
  for (const Call& call : calls_) {
    if (blocks_.contains(call.block) && blocks_.at(call.block).ahead) bytes += ChargeOf(call);
  }
  return bytes;
}

int64_t ScheduleOracle::UsualHeaderCost() const {
  return options_.profile.buffer_packets > 0 ? Packets(192) * options_.profile.frame_bytes : 192;
}

int64_t ScheduleOracle::HeaderCost() const {
  return std::max(UsualHeaderCost(), CostOf(static_cast<int64_t>(std::ceil(mean_header_bytes_))));
}

void ScheduleOracle::HeadersCame(uint64_t tag, int64_t wire_bytes) {
  Call& call = calls_.at(tag);
  if (call.phase >= Call::kSent && call.phase != Call::kEnded && !call.ready) call.header_bytes += wire_bytes;
}

// The mean gives a new value the weight of 1/64.
void ScheduleOracle::ObserveHeaders(Call& call) {
  const auto bytes = static_cast<double>(std::exchange(call.header_bytes, 0));
  if (bytes == 0) return;
  mean_header_bytes_ += (mean_header_bytes_ == 0 ? 1 : 1.0 / 64) * (bytes - mean_header_bytes_);
}

int64_t ScheduleOracle::YoungHeaderBytes() const {
  return HeaderCost() * std::count_if(calls_.begin(), calls_.end(),
                                      [](const Call& call) { return call.phase == Call::kSent && !call.straggles; });
}

int64_t ScheduleOracle::SilentCalls() const {
  return std::count_if(calls_.begin(), calls_.end(),
                       [this](const Call& call) { return call.phase == Call::kSent ? call.straggles : Silent(call); });
}

int64_t ScheduleOracle::AllHeaderBytes() const {
  return YoungHeaderBytes() + SilentCalls() * HeaderCost();
}

// The headers of stragglers and silent calls have the part of a third of the budget that early bytes leave.
int64_t ScheduleOracle::HeaderBytes(int64_t more_calls, int64_t more_early) const {
  const int64_t share = std::max<int64_t>(budget_ / 3 - EarlyBytes() - more_early, 0);
  return YoungHeaderBytes() + std::min((SilentCalls() + more_calls) * HeaderCost(), share);
}

int64_t ScheduleOracle::StillToCome(const Call& call) const {
  if (call.phase == Call::kParked || call.phase == Call::kEnded) return 0;
  if (call.phase != Call::kInFlight && !call.ready) return CostOf(call.expected);
  return CostOf(std::max(call.remaining, call.outstanding));
}

// Returns all bytes, or the payload of the full packets within `cost`, without their framing.
int64_t ScheduleOracle::PartWithin(int64_t payload_bytes, int64_t cost) const {
  const int64_t packet = options_.profile.packet_payload_bytes;
  if (CostOf(payload_bytes) <= cost) return payload_bytes;
  int64_t packets = 1;
  while (CostOf((packets + 1) * packet) <= cost) ++packets;
  const int64_t run = packets * packet;
  return std::min(payload_bytes, std::max(run - options_.record_overhead_bytes, run - run / 2));
}

int64_t ScheduleOracle::PartOf(int64_t payload_bytes, const Call& call) const {
  if (!Bounded(call)) return PartOf(payload_bytes);
  return PartWithin(payload_bytes, std::min(PartCost(), load_(call.worker).share_bytes));
}

int64_t ScheduleOracle::WorkerCharge(uint32_t worker) const {
  int64_t bytes = 0;
  for (const Call& call : calls_) {
    if (call.worker != worker || call.phase == Call::kEnded) continue;
    const int64_t early = call.phase == Call::kInFlight ? CostOf(std::min(call.early, call.outstanding)) : 0;
    bytes += ChargeOf(call) - early;
  }
  return bytes;
}

int64_t ScheduleOracle::WorkerOwes(uint32_t worker) const {
  int64_t bytes = 0;
  for (const Call& call : calls_) {
    const bool owes = Owes(call) && !call.stalled;
    if (call.worker == worker && owes) bytes += CostOf(std::min(call.outstanding, call.remaining));
  }
  return bytes;
}

int64_t ScheduleOracle::OwingCalls(uint32_t worker) const {
  return std::count_if(calls_.begin(), calls_.end(),
                       [worker](const Call& call) { return call.worker == worker && Owes(call); });
}

void ScheduleOracle::NoteOwing() {
  std::erase_if(owed_since_, [this](const auto& entry) { return OwingCalls(entry.first) == 0; });
}

// A slow worker may have its share charged; a worker that is not slow may owe its share.
bool ScheduleOracle::Open(const Call& call) const {
  if (!Bounded(call)) return true;
  const WorkerLoad load = load_(call.worker);
  return (load.slow ? WorkerCharge(call.worker) : WorkerOwes(call.worker)) < load.share_bytes;
}

int64_t ScheduleOracle::SlowBytes() const {
  int64_t bytes = 0;
  for (const auto& [worker, share] : shares_) {
    if (load_(worker).slow) bytes += WorkerCharge(worker);
  }
  return bytes;
}

// All slow workers together count as a third of the budget, or a packet.
int64_t ScheduleOracle::UncountedBytes() const {
  return std::max<int64_t>(SlowBytes() - std::max(budget_ / 3, CostOf(options_.profile.packet_payload_bytes)), 0);
}

std::optional<ScheduleOracle::Waiting> ScheduleOracle::FirstAhead() const {
  std::optional<Waiting> first;
  bool retry = false;
  for (const auto& [id, block] : blocks_) {
    if (block.waiting.empty() || !block.ahead || (first.has_value() && block.retry >= retry)) continue;
    first = Waiting{.block = id, .tag = block.waiting.front()};
    retry = block.retry;
  }
  return first;
}

int ScheduleOracle::RankOf(int64_t bytes) {
  int rank = 0;
  for (; bytes >= 1024; bytes /= 2) ++rank;
  return rank;
}

int64_t ScheduleOracle::RemainingBytes(BlockId id) const {
  int64_t bytes = 0;
  for (const Call& call : calls_) bytes += call.block == id ? StillToCome(call) : 0;
  return bytes;
}

int ScheduleOracle::RankOfBlock(BlockId id) const {
  if (IsLate(id)) return BlockOrder::kLate;
  return Ranked() && !blocks_.at(id).ahead ? RankOf(RemainingBytes(id)) : 0;
}

// Whether a block cannot make its deadline, even if it had the whole link.
bool ScheduleOracle::IsLate(BlockId id) const {
  const Block& block = blocks_.at(id);
  const int64_t bytes = RemainingBytes(id);
  if (!MayRank() || block.ahead || block.deadline == TimePoint::max() || bytes == 0) return false;
  const absl::Duration time =
      options_.profile.propagation_rtt +
      absl::Seconds(static_cast<double>(bytes) / options_.profile.capacity_bytes_per_second * 1.125);
  return block.deadline - absl::ToChronoNanoseconds(time) < now_;
}

std::optional<ScheduleOracle::Waiting> ScheduleOracle::FirstWaiting(size_t traffic_class, bool oldest) const {
  std::optional<Waiting> first;
  for (const auto& [id, block] : blocks_) {
    if (block.ahead || block.waiting.empty() || block.traffic_class != traffic_class) continue;
    const bool earlier =
        !first.has_value() || (oldest ? AgeOf(id) < AgeOf(first->block) : PlaceOf(id) < PlaceOf(first->block));
    if (!earlier && !block.has_turn) continue;
    const auto next =
        std::find_if(block.waiting.begin(), block.waiting.end(), [this](uint64_t tag) { return Open(calls_.at(tag)); });
    if (next != block.waiting.end()) first = Waiting{.block = id, .tag = *next};
  }
  return first;
}

bool ScheduleOracle::AnyWaiting() const {
  for (size_t i = 0; i < classes_.size(); ++i) {
    if (FirstWaiting(i).has_value()) return true;
  }
  return false;
}

int64_t ScheduleOracle::WaitingCalls(size_t traffic_class) const {
  int64_t calls = 0;
  for (const auto& [id, block] : blocks_) {
    if (block.traffic_class == traffic_class && !block.ahead) calls += std::ssize(block.waiting) + block.parked;
  }
  return calls;
}

bool ScheduleOracle::MayBeHeld(const Waiting& waiting) const {
  const Call& call = calls_.at(waiting.tag);
  return Bounded(call) && std::any_of(calls_.begin(), calls_.end(), [&](const Call& other) {
           return other.phase == Call::kWaiting && other.worker == call.worker && other.block != call.block;
         });
}

// Handshakes get a third of the budget, retries a sixth; a single one always has its share.
bool ScheduleOracle::HandshakeHasShare(const Call& call) const {
  const int64_t charge = HandshakeBytes();
  const int64_t share = budget_ / 3 / (blocks_.at(call.block).retry ? 2 : 1);
  return charge == 0 || charge + CostOf(call.expected) <= share;
}

bool ScheduleOracle::HandshakeFits(const Call& call) const {
  return Alone() || Fits(CostOf(call.expected) + (granting() ? HeaderBytes() : 0));
}

bool ScheduleOracle::RoomIsMade() const {
  const std::optional<Waiting> first = FirstAhead();
  return first.has_value() && HandshakeHasShare(calls_.at(first->tag));
}

void ScheduleOracle::NoteLateWorkers() {
  for (Call& call : calls_) {
    if (call.phase == Call::kSent) call.late_worker = call.late_worker || Slow(call) || !Open(call) || share_fell_;
  }
}

std::vector<ScheduleOracle::Turn> ScheduleOracle::OpenTurns(std::optional<size_t> traffic_class) const {
  std::vector<Turn> turns;
  for (const Turn& turn : turns_) {
    const Call& call = calls_.at(turn.tag);
    const bool of_class = ClassOf(call) == traffic_class.value_or(ClassOf(call));
    if (of_class && Open(call) && !call.unwanted) turns.push_back(turn);
  }
  return turns;
}

const ScheduleOracle::Turn* ScheduleOracle::OldestTurn(const std::vector<Turn>& turns) const {
  const auto age = [this](const Turn& turn) {
    const Call& call = calls_.at(turn.tag);
    return std::pair(AgeOf(call.block), call.message);
  };
  const auto oldest =
      std::min_element(turns.begin(), turns.end(), [&](const Turn& a, const Turn& b) { return age(a) < age(b); });
  return oldest == turns.end() ? nullptr : &*oldest;
}

// A request overtakes no response of a block of its class that comes before its own, and none of its own block.
bool ScheduleOracle::MayOvertake(const Call& call, bool oldest) const {
  const std::vector<Turn> turns = OpenTurns(ClassOf(call));
  return std::none_of(turns.begin(), turns.end(), [&](const Turn& turn) {
    const BlockId block = calls_.at(turn.tag).block;
    return oldest ? AgeOf(block) <= AgeOf(call.block) : PlaceOf(block) <= PlaceOf(call.block);
  });
}

bool ScheduleOracle::HeldTooLong(uint64_t tag) const {
  const auto is_it = [tag](const Turn& turn) { return turn.tag == tag; };
  const auto turn = std::find_if(turns_.begin(), turns_.end(), is_it);
  return turn != turns_.end() && turn->since + std::chrono::seconds(3) <= now_;
}

std::optional<uint64_t> ScheduleOracle::LongestTurn() const {
  const auto longest =
      std::find_if(turns_.begin(), turns_.end(), [this](const Turn& turn) { return Open(calls_.at(turn.tag)); });
  return longest == turns_.end() ? std::nullopt : std::optional(longest->tag);
}

// A response that was held for too long precedes all classes, and an unwanted one follows them.
bool ScheduleOracle::IsNextTurn(uint64_t tag) const {
  const std::optional<uint64_t> longest = LongestTurn();
  if (longest.has_value() && (HeldTooLong(*longest) || OpenTurns().empty())) return tag == *longest;
  const size_t traffic_class = ClassOf(calls_.at(tag));
  return NextTurn(traffic_class) == tag || (OldestMayBeDue(traffic_class) && NextTurn(traffic_class, true) == tag);
}

std::optional<uint64_t> ScheduleOracle::NextTurn(size_t traffic_class, bool oldest) const {
  const std::vector<Turn> turns = OpenTurns(traffic_class);
  if (turns.empty()) return std::nullopt;
  if (oldest) return OldestTurn(turns)->tag;
  const auto place = [this](const Turn& turn) {
    const Call& call = calls_.at(turn.tag);
    return std::tuple(PlaceOf(call.block), turn.rank, call.message);
  };
  return std::min_element(turns.begin(), turns.end(), [&](const Turn& a, const Turn& b) { return place(a) < place(b); })
      ->tag;
}

// A grant leaves room for the headers of a full window, and of all calls that are out.
bool ScheduleOracle::MayGrant(const Call& call, int64_t bytes) const {
  if (!PacerOpen()) return false;
  const int64_t cost = CostOf(call.outstanding + bytes) - CostOf(call.outstanding);
  if (!granting()) return Alone() || Fits(cost);
  const int64_t more_of_window = std::max<int64_t>(window_ * HeaderCost() - YoungHeaderBytes(), 0);
  return Alone() || Fits(cost + HeaderBytes() + more_of_window);
}

bool ScheduleOracle::MayGoEarly(const Call& call, int64_t bytes) const {
  return MayGoEarlyWithRoom(call, bytes) && HasRoomForEarly(bytes);
}

bool ScheduleOracle::HasRoomForEarly(int64_t bytes) const {
  return Fits(CostOf(bytes) + HeaderBytes(1, CostOf(bytes)));
}

bool ScheduleOracle::MayGoEarlyWithRoom(const Call& call, int64_t bytes) const {
  const int64_t share = budget_ / 3;
  const int64_t asked = AskedUpTo(call);
  const auto silent = std::count_if(calls_.begin(), calls_.end(),
                                    [this](const Call& other) { return other.phase != Call::kSent && Silent(other); });
  const int64_t large_headers = (silent + 1) * (HeaderCost() - UsualHeaderCost());
  return !call.may_idle && !call.unwanted && (share_fell_ || (Open(call) && !Slow(call))) &&
         bytes == PartOf(call.expected) && (asked <= share || any_ready_) && MayOvertakeByEitherRule(call) &&
         EarlyBytes() + CostOf(bytes) + large_headers <= share &&
         CostOf(options_.profile.packet_payload_bytes) <= share;
}

// A request of a small block waits for the room of its response, for at most a drain time.
bool ScheduleOracle::MayWaitForRoom(const Call& call) const {
  const int64_t bytes = PartOf(call.expected);
  return !Alone() && now_ < blocks_.at(call.block).since + DrainTime() && AskedUpTo(call) <= budget_ / 3 &&
         MayGoEarlyWithRoom(call, bytes) && !HasRoomForEarly(bytes);
}

bool ScheduleOracle::MustWaitForRoom(const Call& call) const {
  return Open(call) && !Slow(call) && MustOvertake(call) && !OtherClassHasTurn(call) && MayWaitForRoom(call);
}

// Only the schedule decides whether workers are fast enough for early bytes in other cases, and which class is next.
bool ScheduleOracle::MustGoEarly(const Call& call) const {
  const bool fast = Open(call) && !Slow(call);  // after a share has fallen, MayGoEarly does not ask
  return fast && !OtherClassHasTurn(call) && AskedUpTo(call) <= budget_ / 3 && MustOvertake(call) &&
         MayGoEarly(call, PartOf(call.expected));
}

// Returns what is still to come of all blocks of the class that are not larger.
int64_t ScheduleOracle::AskedUpTo(const Call& call) const {
  const int rank = RankOfBlock(call.block);
  int64_t bytes = 0;
  for (const auto& [id, block] : blocks_) {
    if (block.traffic_class == ClassOf(call) && RankOfBlock(id) <= rank) bytes += RemainingBytes(id);
  }
  return bytes;
}

int64_t ScheduleOracle::UngrantedOf(size_t traffic_class) const {
  return std::count_if(calls_.begin(), calls_.end(), [&](const Call& call) {
    const bool young = call.phase == Call::kSent && !call.straggles;
    return (young || (call.phase == Call::kReady && Open(call))) && ClassOf(call) == traffic_class;
  });
}

// All classes together fill less than one window, or the class has not its part: of all its calls, or of the calls of
// blocks that are not larger. Each window is smaller by the stock.
bool ScheduleOracle::WindowIsOpen(const Call& call, int64_t stock) const {
  double full = 0;
  for (size_t i = 0; i < classes_.size(); ++i) {
    const int64_t window = std::max<int64_t>(classes_[i].window - stock, 1);
    full += static_cast<double>(UngrantedOf(i)) / static_cast<double>(window);
  }
  const int rank = RankOfBlock(call.block);
  const int64_t not_larger = std::count_if(calls_.begin(), calls_.end(), [&](const Call& other) {
    return (other.phase == Call::kSent || other.phase == Call::kReady) && RankOfBlock(other.block) <= rank &&
           ClassOf(other) == ClassOf(call);
  });
  const int64_t ungranted = std::min(UngrantedOf(ClassOf(call)), not_larger);
  return full < 1 || ungranted < std::max<int64_t>(classes_[ClassOf(call)].least_window - stock, 1);
}

// The window is open, and the headers fit in addition to the granted bytes; or only silent workers are out.
bool ScheduleOracle::MayAsk(const Call& call) const {
  if (YoungHeaderBytes() == 0 && Alone()) return true;
  return WindowIsOpen(call, 0) && Fits(HeaderBytes() + HeaderCost());
}

// While no response is ready or granted, the requests in stock may wait.
bool ScheduleOracle::MustAsk(const Call& call) const {
  constexpr int64_t kStock = 4;
  return MayAsk(call) && (!Alone() || YoungHeaderBytes() == 0 || WindowIsOpen(call, kStock));
}

bool ScheduleOracle::MayLeaveWith(const Call& call, bool ahead, int64_t bytes) const {
  if (!limited()) return bytes == int64_t{1} << 32;
  if (ahead) return bytes == call.expected && HandshakeHasShare(call) && HandshakeFits(call);
  if (granting()) return bytes == 0 ? share_fell_ || (MayAsk(call) && !MustWaitForRoom(call)) : MayGoEarly(call, bytes);
  if (!MayOvertakeByEitherRule(call)) return false;
  const bool bounded = Bounded(call) && !share_fell_;
  const int64_t most = PipeBytes() > 0 ? PartOf(call.expected, call)
                       : bounded       ? PartWithin(call.expected, load_(call.worker).share_bytes)
                                       : call.expected;
  if ((bytes == most || share_fell_) && Fits(CostOf(bytes))) return true;
  return Alone() && (share_fell_ || bytes == (batched() ? call.expected : PartOf(call.expected, call)));
}

bool ScheduleOracle::MustLeave(const Call& call) const {
  if (!limited()) return true;
  if (!PacerOpen() && (!granting() || MayGoEarly(call, PartOf(call.expected)))) return false;
  if (granting()) return (MustAsk(call) && !MayWaitForRoom(call)) || MustGoEarly(call);
  if (!MustOvertake(call)) return false;
  const int64_t most = PipeBytes() > 0 ? PartOf(call.expected, call)
                       : Bounded(call) ? PartWithin(call.expected, load_(call.worker).share_bytes)
                                       : call.expected;
  return Alone() || Fits(CostOf(most));
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

// T~ = ceil((T + d_max) / Δt) · Δt, where T has the two rounds of a persistent connection.
std::chrono::nanoseconds ScheduleOracle::SlotOf(int64_t payload_bytes) const {
  const LinkProfile& profile = options_.profile;
  const auto transmission = (profile.frame_bytes + profile.ack_frame_bytes) * Packets(payload_bytes) * byte_time_;
  const auto step = absl::ToChronoNanoseconds(profile.timer_granularity);
  return (transmission + 2 * DrainTime() + jitter_ + step - std::chrono::nanoseconds(1)) / step * step;
}

std::chrono::nanoseconds ScheduleOracle::DrainTime() const {
  return absl::ToChronoNanoseconds(options_.profile.propagation_rtt) + buffer_ * byte_time_;
}

}  // namespace sluice
