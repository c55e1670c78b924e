// The rules of the oracle: costs, times, and which calls may leave.
#include <algorithm>
#include <cmath>
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
  if (!granting() || bytes == 0) return;
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
  return PartWithin(payload_bytes, std::min(budget_ / 3, load_(call.worker).share_bytes));
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

std::optional<ScheduleOracle::Waiting> ScheduleOracle::FirstWaiting() const {
  std::optional<Waiting> first;
  for (const auto& [id, block] : blocks_) {
    if (block.ahead || (first.has_value() && !block.has_turn)) continue;
    const auto next =
        std::find_if(block.waiting.begin(), block.waiting.end(), [this](uint64_t tag) { return Open(calls_.at(tag)); });
    if (next != block.waiting.end()) first = Waiting{.block = id, .tag = *next};
  }
  return first;
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

bool ScheduleOracle::RestIsDue() const {
  const auto rests = std::count_if(turns_.begin(), turns_.end(),
                                   [this](const Turn& turn) { return turn.rest && Open(calls_.at(turn.tag)); });
  return rests > 0 && !overtook_unknown_ && overtook_ >= budget_ / rests;
}

bool ScheduleOracle::MayOvertake() const {
  return std::all_of(turns_.begin(), turns_.end(),
                     [this](const Turn& turn) {
                       const Call& call = calls_.at(turn.tag);
                       return turn.rest || call.unwanted || !Open(call);
                     }) &&
         !RestIsDue();
}

std::optional<uint64_t> ScheduleOracle::NextTurn() const {
  std::vector<Turn> turns;
  for (const Turn& turn : turns_) {
    if (Open(calls_.at(turn.tag))) turns.push_back(turn);
  }
  if (turns.empty()) return std::nullopt;
  if (turns.front().since + std::chrono::seconds(3) <= now_) return turns.front().tag;
  const uint64_t longest = turns.front().tag;
  std::erase_if(turns, [this](const Turn& turn) { return calls_.at(turn.tag).unwanted; });
  if (turns.empty()) return longest;
  const Turn* first = nullptr;
  for (const Turn& turn : turns) {
    const bool older = first != nullptr && calls_.at(turn.tag).block < calls_.at(first->tag).block;
    if (!turn.rest && (first == nullptr || older)) first = &turn;
  }
  const auto is_rest = [](const Turn& turn) { return turn.rest; };
  if (first == nullptr || RestIsDue()) return std::find_if(turns.begin(), turns.end(), is_rest)->tag;
  return first->tag;
}

// A grant leaves room for the headers of a full window, and of all calls that are out.
bool ScheduleOracle::MayGrant(const Call& call, int64_t bytes) const {
  const int64_t cost = CostOf(call.outstanding + bytes) - CostOf(call.outstanding);
  if (!granting()) return Alone() || Fits(cost);
  const int64_t more_of_window = std::max<int64_t>(window_ * HeaderCost() - YoungHeaderBytes(), 0);
  return Alone() || Fits(cost + HeaderBytes() + more_of_window);
}

bool ScheduleOracle::MayGoEarly(const Call& call, int64_t bytes) const {
  const int64_t share = budget_ / 3;
  int64_t asked = 0;
  for (const Call& other : calls_) asked += StillToCome(other);
  const auto silent = std::count_if(calls_.begin(), calls_.end(),
                                    [this](const Call& other) { return other.phase != Call::kSent && Silent(other); });
  const int64_t large_headers = (silent + 1) * (HeaderCost() - UsualHeaderCost());
  return !call.may_idle && !call.unwanted && (share_fell_ || (Open(call) && !Slow(call))) &&
         bytes == PartOf(call.expected) && (asked <= share || any_ready_) && MayOvertake() &&
         EarlyBytes() + CostOf(bytes) + large_headers <= share &&
         CostOf(options_.profile.packet_payload_bytes) <= share && Fits(CostOf(bytes) + HeaderBytes(1, CostOf(bytes)));
}

// Only the schedule decides whether workers are fast enough for early bytes in other cases.
bool ScheduleOracle::MustGoEarly(const Call& call) const {
  int64_t asked = 0;
  for (const Call& other : calls_) asked += StillToCome(other);
  return asked <= budget_ / 3 && MayGoEarly(call, PartOf(call.expected));
}

// The window is open, and the headers fit in addition to the granted bytes; or only silent workers are out.
bool ScheduleOracle::MayAsk() const {
  if (NextTurn().has_value() && Alone()) return false;
  const int64_t young = YoungHeaderBytes() / HeaderCost();
  if (young == 0 && Alone()) return true;
  const auto ready = std::count_if(calls_.begin(), calls_.end(),
                                   [this](const Call& call) { return call.phase == Call::kReady && Open(call); });
  return young + ready < window_ && Fits(HeaderBytes() + HeaderCost());
}

// While no response is ready or granted, the requests in stock may wait.
bool ScheduleOracle::MustAsk() const {
  constexpr int64_t kStock = 4;
  const int64_t young = YoungHeaderBytes() / HeaderCost();
  return MayAsk() && (!Alone() || young == 0 || young + kStock < window_);
}

bool ScheduleOracle::MayLeaveWith(const Call& call, bool ahead, int64_t bytes) const {
  if (!limited()) return bytes == int64_t{1} << 32;
  if (ahead) return bytes == call.expected && HandshakeHasShare(call) && HandshakeFits(call);
  if (granting()) return bytes == 0 ? share_fell_ || MayAsk() : MayGoEarly(call, bytes);
  if (!MayOvertake()) return false;
  const bool bounded = Bounded(call) && !share_fell_;
  const int64_t most = bounded ? PartWithin(call.expected, load_(call.worker).share_bytes) : call.expected;
  if ((bytes == most || share_fell_) && Fits(CostOf(bytes))) return true;
  return Alone() && (share_fell_ || bytes == (batched() ? call.expected : PartOf(call.expected, call)));
}

bool ScheduleOracle::MustLeave(const Call& call) const {
  if (!limited()) return true;
  if (granting()) return MustAsk() || MustGoEarly(call);
  if (!MayOvertake()) return false;
  const int64_t most = Bounded(call) ? PartWithin(call.expected, load_(call.worker).share_bytes) : call.expected;
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
