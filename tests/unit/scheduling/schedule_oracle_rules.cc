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
  return std::any_of(calls_.begin(), calls_.end(), [](const Call& call) { return call.stalled || call.late; });
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
  return granting() && answers && call.remaining == 0 && Rest(call) == 0 && !call.late;
}

int64_t ScheduleOracle::ChargeOf(const Call& call) const {
  if (call.phase != Call::kInFlight) return 0;
  const int64_t early = CostOf(std::min(call.early, call.outstanding));
  return (call.stalled ? early : CostOf(call.outstanding)) - (call.late ? early : 0);
}

int64_t ScheduleOracle::DrainingBytes() const {
  int64_t bytes = 0;
  for (const auto& [until, cost] : draining_) bytes += cost;
  return bytes;
}

int64_t ScheduleOracle::InFlightBytes() const {
  int64_t bytes = DrainingBytes();
  for (const Call& call : calls_) bytes += ChargeOf(call);
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
    if (call.phase == Call::kInFlight && !call.late) bytes += CostOf(std::min(call.early, call.outstanding));
  }
  return bytes;
}

int64_t ScheduleOracle::LateBytes() const {
  int64_t bytes = 0;
  for (const Call& call : calls_) {
    if (call.phase == Call::kInFlight && call.late) bytes += CostOf(std::min(call.early, call.outstanding));
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

// What the last headers of the worker took beyond the usual room, at most a third of the budget.
int64_t ScheduleOracle::LargeRoomOf(const Call& call) const {
  const auto mean = mean_header_bytes_.find(HeaderWorker(call));
  if (mean == mean_header_bytes_.end()) return 0;
  const int64_t cost = CostOf(static_cast<int64_t>(std::ceil(mean->second)));
  return cost <= 2 * UsualHeaderCost() ? 0 : std::min(cost - UsualHeaderCost(), budget_ / 3);
}

void ScheduleOracle::HeadersCame(uint64_t tag, int64_t wire_bytes) {
  Call& call = calls_.at(tag);
  if (call.phase >= Call::kSent && call.phase != Call::kEnded && !call.ready) call.header_bytes += wire_bytes;
}

// The mean of a worker gives a new value the weight of 1/8.
void ScheduleOracle::ObserveHeaders(Call& call) {
  const auto bytes = static_cast<double>(std::exchange(call.header_bytes, 0));
  if (bytes == 0) return;
  double& mean = mean_header_bytes_[HeaderWorker(call)];
  mean += (mean == 0 ? 1 : 1.0 / 8) * (bytes - mean);
}

int64_t ScheduleOracle::YoungCalls(std::optional<size_t> traffic_class) const {
  return std::count_if(calls_.begin(), calls_.end(), [&](const Call& call) {
    return call.phase == Call::kSent && !call.straggles && ClassOf(call) == traffic_class.value_or(ClassOf(call));
  });
}

int64_t ScheduleOracle::YoungExpected(std::optional<size_t> traffic_class) const {
  int64_t bytes = 0;
  for (const Call& call : calls_) {
    const bool young = call.phase == Call::kSent && !call.straggles;
    if (young && ClassOf(call) == traffic_class.value_or(ClassOf(call))) bytes += call.expected;
  }
  return bytes;
}

// Large headers of young and silent calls.
int64_t ScheduleOracle::LargeHeaderBytes() const {
  int64_t bytes = 0;
  for (const Call& call : calls_) {
    if (call.phase == Call::kSent ? !call.straggles : Silent(call)) bytes += call.large_room;
  }
  return bytes;
}

bool ScheduleOracle::HeadersFit(const Call& call) const {
  const int64_t large = Bounded(call) ? LargeRoomOf(call) : 0;
  const int64_t taken = LargeHeaderBytes();
  return large == 0 || taken == 0 || taken + large <= budget_ / 3;
}

bool ScheduleOracle::IsHung(const Call& call) const {
  return call.straggles && call.sent_at + absl::ToChronoNanoseconds(options_.stall_timeout) <= now_;
}

int64_t ScheduleOracle::YoungHeaderBytes() const {
  return UsualHeaderCost() * YoungCalls() + LargeHeaderBytes();
}

// The usual headers of stragglers and silent calls; no room is kept for hung calls.
int64_t ScheduleOracle::SilentHeaderBytes(bool with_hung) const {
  int64_t bytes = 0;
  for (const Call& call : calls_) {
    const bool straggles = call.phase == Call::kSent && call.straggles;
    if (straggles ? with_hung || !IsHung(call) : call.phase != Call::kSent && Silent(call)) bytes += call.header_room;
  }
  return bytes;
}

int64_t ScheduleOracle::AllHeaderBytes() const {
  int64_t late = 0;
  for (const Call& call : calls_) late += call.phase == Call::kInFlight && call.late ? call.header_room : 0;
  return YoungHeaderBytes() + SilentHeaderBytes(true) + late;
}

// The headers of stragglers and silent calls have the part of a third of the budget that early bytes leave.
int64_t ScheduleOracle::HeaderBytes(int64_t more_bytes, int64_t more_early) const {
  const int64_t share = std::max<int64_t>(budget_ / 3 - EarlyBytes() - more_early, 0);
  return YoungHeaderBytes() + std::min(SilentHeaderBytes(false) + more_bytes, share);
}

int64_t ScheduleOracle::StillToCome(const Call& call) const {
  if (call.phase == Call::kParked || call.phase == Call::kEnded) return 0;
  if (call.phase != Call::kInFlight && !call.ready) return CostOf(call.expected);
  return CostOf(std::max(call.remaining, call.outstanding));
}

// Returns all bytes, or the payload of the full packets within `cost`, without their framing. One packet is never left.
int64_t ScheduleOracle::PartWithin(int64_t payload_bytes, int64_t cost) const {
  const int64_t packet = options_.profile.packet_payload_bytes;
  if (CostOf(payload_bytes) <= cost) return payload_bytes;
  int64_t packets = 1;
  while (CostOf((packets + 1) * packet) <= cost) ++packets;
  if (packets > 1 && payload_bytes - (packets * packet - options_.record_overhead_bytes) <= packet) --packets;
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
    const bool has_early = call.phase == Call::kInFlight && !call.late;
    const int64_t early = has_early ? CostOf(std::min(call.early, call.outstanding)) : 0;
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
  if (load.slow && SlowAreFull()) return false;
  return (load.slow ? WorkerCharge(call.worker) : WorkerOwes(call.worker)) < load.share_bytes;
}

int64_t ScheduleOracle::SlowBytes() const {
  int64_t bytes = 0;
  for (const auto& [worker, share] : shares_) {
    if (load_(worker).slow) bytes += WorkerCharge(worker);
  }
  return bytes;
}

// All slow workers together count as a third of the budget, or a packet. At most three tenths do not count.
int64_t ScheduleOracle::CountedSlowBytes() const {
  return std::max(budget_ / 3, CostOf(options_.profile.packet_payload_bytes));
}

int64_t ScheduleOracle::UncountedBytes() const {
  return std::clamp<int64_t>(SlowBytes() - CountedSlowBytes(), 0, budget_ / 10 * 3);
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

int64_t ScheduleOracle::KnownBytes(BlockId id) const {
  int64_t bytes = 0;
  for (const Call& call : calls_) bytes += call.block == id && call.ready ? StillToCome(call) : 0;
  return bytes;
}

int64_t ScheduleOracle::Claimed(const Call& call) {
  return call.received + std::max<int64_t>(call.ready ? call.remaining : call.outstanding, 0);
}

int64_t ScheduleOracle::ClaimedBytes(BlockId id) const {
  int64_t bytes = blocks_.at(id).claimed;
  for (const Call& call : calls_) {
    if (call.block == id && call.phase != Call::kEnded) bytes += CostOf(Claimed(call));
  }
  return bytes;
}

bool ScheduleOracle::IsSized(BlockId id) const {
  return std::none_of(calls_.begin(), calls_.end(), [id](const Call& call) {
    return call.block == id && call.phase != Call::kEnded && !call.aborted && (!call.ready || call.may_idle);
  });
}

int64_t ScheduleOracle::ReadyBytes(std::optional<BlockId> id, std::optional<size_t> traffic_class) const {
  int64_t bytes = 0;
  for (const Call& call : calls_) {
    if (call.phase == Call::kEnded || call.aborted || call.unwanted || blocks_.at(call.block).ahead) continue;
    const bool counts = call.block == id.value_or(call.block) && ClassOf(call) == traffic_class.value_or(ClassOf(call));
    if (counts) bytes += Rest(call);
  }
  return bytes;
}

// The bytes that remain if all sizes are known. Otherwise the bytes that were granted or announced, in powers of 16.
int ScheduleOracle::RankOfBlock(BlockId id) const {
  if (IsLate(id)) return BlockOrder::kLate;
  if (!Ranked() || blocks_.at(id).ahead) return 0;
  return IsSized(id) ? RankOf(KnownBytes(id)) : RankOf(ClaimedBytes(id)) / 4 * 4;
}

// With grants, the requests that the block has sent, in powers of two. A block that is not small comes after the
// others, and one that has a budget ready and all its calls out comes last.
int ScheduleOracle::RequestRankOf(BlockId id) const {
  if (!granting()) return RankOfBlock(id);
  const bool has_ready = ReadyBytes(id) >= budget_;
  const auto ungranted = std::count_if(calls_.begin(), calls_.end(), [id](const Call& call) {
    return call.block == id && (call.phase == Call::kSent || call.phase == Call::kReady);
  });
  if (has_ready && ungranted * UsualHeaderCost() >= budget_ / 3) return BlockOrder::kStocked;
  int rank = 0;
  for (int64_t sent = options_.shortest_first ? blocks_.at(id).sent : 0; sent > 0; sent /= 2) ++rank;
  return rank + (IsSmall(id) ? 0 : BlockOrder::kNotSmall);
}

// Whether it has announced less than a budget, or may find out with its first requests.
bool ScheduleOracle::IsSmall(BlockId id) const {
  const Block& block = blocks_.at(id);
  return block.known > 0 ? ClaimedBytes(id) < budget_ : block.sent < 16;
}

// Whether the bytes that are known of a block cannot make its deadline, even if it had the whole link.
bool ScheduleOracle::IsLate(BlockId id) const {
  const Block& block = blocks_.at(id);
  const int64_t bytes = KnownBytes(id);
  if (!MayRank() || block.ahead || block.deadline == TimePoint::max() || bytes == 0) return false;
  const absl::Duration time =
      options_.profile.propagation_rtt +
      absl::Seconds(static_cast<double>(bytes) / options_.profile.capacity_bytes_per_second * 1.125);
  return block.deadline - absl::ToChronoNanoseconds(time) < now_;
}

std::optional<ScheduleOracle::Waiting> ScheduleOracle::FirstWaiting(size_t traffic_class, bool oldest,
                                                                    bool certain) const {
  std::optional<Waiting> first;
  for (const auto& [id, block] : blocks_) {
    if (block.ahead || block.waiting.empty() || block.traffic_class != traffic_class) continue;
    const bool earlier = !first.has_value() || (!oldest && RequestPlaceOf(id) < RequestPlaceOf(first->block));
    if (!earlier && !block.has_turn) continue;
    const auto next = std::find_if(block.waiting.begin(), block.waiting.end(), [&](uint64_t tag) {
      return MayBeAsked(calls_.at(tag)) && !(certain && SharesRoom(calls_.at(tag)));
    });
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
    return std::pair(call.block, call.message);
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
    return oldest ? block <= call.block : PlaceOf(block) <= PlaceOf(call.block);
  });
}

std::optional<uint64_t> ScheduleOracle::LongestTurn() const {
  const auto longest =
      std::find_if(turns_.begin(), turns_.end(), [this](const Turn& turn) { return Open(calls_.at(turn.tag)); });
  return longest == turns_.end() ? std::nullopt : std::optional(longest->tag);
}

// An unwanted response follows all classes.
bool ScheduleOracle::IsNextTurn(uint64_t tag) const {
  const std::optional<uint64_t> longest = LongestTurn();
  if (longest.has_value() && OpenTurns().empty()) return tag == *longest;
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

// A grant leaves room for the headers of all calls that are out and of four more, or a third of the budget for a
// request that waits for this room.
bool ScheduleOracle::MayGrant(const Call& call, int64_t bytes, int64_t wanted_header_bytes) const {
  if (!PacerOpen()) return false;
  const int64_t cost = CostOf(call.outstanding + bytes) - CostOf(call.outstanding);
  if (!granting()) return Alone() || Fits(cost);
  const int64_t reserve = std::max(wanted_header_bytes, std::min(4 * UsualHeaderCost(), budget_ / 3));
  const int64_t more = std::max<int64_t>(reserve - YoungHeaderBytes(), 0);
  return Alone() || Fits(cost + HeaderBytes() + more);
}

// While heavier classes have responses to come and none ready, a class takes its share of the budget, or a sixth of the
// budget and the bytes of two round trips.
bool ScheduleOracle::LeavesRoomToHeavier(const Call& call) const {
  if (!granting()) return true;
  const double weight = WeightOf(ClassOf(call));
  double weights = weight;
  for (size_t i = 0; i < classes_.size(); ++i) {
    if (WeightOf(i) <= weight || AskedOfClass(i) == 0) continue;
    if (!OpenTurns(i).empty()) return true;
    weights += WeightOf(i);
  }
  const double path_bytes =
      absl::ToDoubleSeconds(options_.profile.propagation_rtt) * 1e9 / static_cast<double>(byte_time_.count());
  const auto budget = static_cast<double>(budget_);
  const int64_t coming = InFlightBytes() - EarlyBytes() - HandshakeBytes() - SlowBytes() - DrainingBytes();
  return weights == weight ||
         static_cast<double>(coming) <= std::max(budget * weight / weights, budget / 6 + 2 * path_bytes);
}

// While no response has a turn, a call may get a part of what it expects before it is ready, of a third of the budget.
bool ScheduleOracle::MayGoEarly(const Call& call, int64_t bytes) const {
  const int64_t share = budget_ / 3;
  const auto debt = early_debt_.find(HeaderWorker(call));
  const bool all_fit = call.phase == Call::kWaiting && AskedOfClass(ClassOf(call)) <= share;
  return !call.may_idle && !call.unwanted && !AnyTurn() && (debt == early_debt_.end() || debt->second == 0) &&
         LateBytes() < budget_ && (share_fell_ || (Open(call) && !Slow(call))) && bytes == PartOf(call.expected) &&
         (all_fit || any_ready_) && EarlyBytes() + CostOf(bytes) + LargeHeaderBytes() + LargeRoomOf(call) <= share &&
         CostOf(options_.profile.packet_payload_bytes) <= share &&
         Fits(CostOf(bytes) + HeaderBytes(UsualHeaderCost(), CostOf(bytes)));
}

// Only the schedule decides whether workers are fast enough for early bytes in other cases.
bool ScheduleOracle::MustGoEarly(const Call& call) const {
  const bool fast = Open(call) && !Slow(call);  // after a share has fallen, MayGoEarly does not ask
  return fast && AskedOfClass(ClassOf(call)) <= budget_ / 3 && MayGoEarly(call, PartOf(call.expected));
}

// Returns what is still to come of all blocks of the class, with expected sizes.
int64_t ScheduleOracle::AskedOfClass(size_t traffic_class) const {
  int64_t bytes = 0;
  for (const auto& [id, block] : blocks_) bytes += block.traffic_class == traffic_class ? RemainingBytes(id) : 0;
  return bytes;
}

// There is room for the headers, or only silent workers are out.
bool ScheduleOracle::MayAsk(const Call& call) const {
  if (YoungCalls() == 0 && Alone()) return true;
  return MayAskWithRoom(call) && Fits(HeaderBytes() + UsualHeaderCost() + LargeRoomOf(call));
}

// Headers of the usual size take a third. Responses that are ready take their bound, and half of it with the expected
// bytes of young calls if the block is not small. Each class may have its part.
bool ScheduleOracle::MayAskWithRoom(const Call& call) const {
  const size_t of = ClassOf(call);
  const int64_t usual = UsualHeaderCost();
  const auto bound = static_cast<double>(options_.ready_bytes);
  const Block& block = blocks_.at(call.block);
  const bool small = IsSmall(call.block);
  const int64_t most_young = block.sent == 0 ? 8 : block.known > 0 ? 64 : 0;
  return RequestRankOf(call.block) != BlockOrder::kStocked &&
         HasShare(of, (YoungCalls() + 1) * usual - 1, (YoungCalls(of) + 1) * usual - 1,
                  static_cast<double>(budget_ / 3)) &&
         (HasShare(of, ReadyBytes({}) + YoungExpected(), ReadyBytes({}, of) + YoungExpected(of),
                   small ? bound / 2 : bound / 4) ||
          (small && YoungCalls(of) < most_young && HasShare(of, ReadyBytes({}), ReadyBytes({}, of), bound * 7 / 8)));
}

bool ScheduleOracle::HasShare(size_t traffic_class, int64_t all, int64_t of_class, double bound) const {
  double weights = 0;
  for (size_t i = 0; i < classes_.size(); ++i) weights += WeightOf(i);
  const double share = classes_.size() == 1 ? 0 : WeightOf(traffic_class) / weights;
  return static_cast<double>(all) < bound || static_cast<double>(of_class) < share * bound;
}

std::optional<int64_t> ScheduleOracle::WantedHeaderBytes() const {
  std::optional<int64_t> wanted = 0;
  for (size_t i = 0; i < classes_.size(); ++i) {
    const std::optional<Waiting> first = FirstWaiting(i);
    if (!first.has_value()) {
      if (WaitingCalls(i) > 0) return std::nullopt;  // they may be held, or not yet
      continue;
    }
    const Call& call = calls_.at(first->tag);
    const std::optional<Waiting> oldest = FirstWaiting(i, true);
    if (oldest->tag != first->tag || MayBeHeld(*first) || SharesRoom(call)) return std::nullopt;
    if (MayAskWithRoom(call)) wanted = std::max(budget_ / 3, YoungHeaderBytes() + UsualHeaderCost());
  }
  return wanted;
}

bool ScheduleOracle::MayLeaveWith(const Call& call, bool ahead, int64_t bytes) const {
  if (!limited()) return bytes == int64_t{1} << 32;
  if (ahead) return bytes == call.expected && HandshakeHasShare(call) && HandshakeFits(call);
  if (granting()) return bytes == 0 ? share_fell_ || MayAsk(call) : MayGoEarly(call, bytes);
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
  if (granting()) return MayAsk(call) || MustGoEarly(call);
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
