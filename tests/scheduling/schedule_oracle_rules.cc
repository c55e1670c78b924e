// What the oracle goes by: costs, times, and who may leave.
#include <algorithm>

#include "absl/time/time.h"
#include "tests/scheduling/schedule_oracle.h"

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

// In flight, and nothing is known to come: only a header may.
bool ScheduleOracle::Silent(const Call& call) const {
  const bool answers = call.phase == Call::kInFlight && !call.aborted && !blocks_.at(call.block).ahead;
  return granting() && answers && call.remaining == 0 && Rest(call) == 0;
}

int64_t ScheduleOracle::ChargeOf(const Call& call) const {
  if (call.phase != Call::kInFlight) return 0;
  return call.headers + CostOf(call.stalled ? std::min(call.early, call.outstanding) : call.outstanding);
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

// Those of stragglers and silent calls have what early bytes leave of a third of the budget.
int64_t ScheduleOracle::HeaderBytes(int64_t more_calls, int64_t more_early) const {
  const int64_t share = std::max<int64_t>(budget_ / 3 - EarlyBytes() - more_early, 0);
  return YoungHeaderBytes() + std::min((SilentCalls() + more_calls) * HeaderCost(), share);
}

int64_t ScheduleOracle::StillToCome(const Call& call) const {
  if (call.phase == Call::kParked || call.phase == Call::kEnded) return 0;
  if (call.phase != Call::kInFlight && !call.ready) return CostOf(call.expected);
  return CostOf(std::max(call.remaining, call.outstanding));
}

// All of it, or as many full packets as cost a third of the budget, less their framing.
int64_t ScheduleOracle::PartOf(int64_t payload_bytes) const {
  const int64_t packet = options_.profile.packet_payload_bytes;
  if (CostOf(payload_bytes) <= budget_ / 3) return payload_bytes;
  int64_t packets = 1;
  while (CostOf((packets + 1) * packet) <= budget_ / 3) ++packets;
  const int64_t run = packets * packet;
  return std::min(payload_bytes, std::max(run - options_.record_overhead_bytes, run - run / 2));
}

const std::pair<const BlockId, ScheduleOracle::Block>* ScheduleOracle::FirstWaiting() const {
  const std::pair<const BlockId, Block>* first = nullptr;
  for (const auto& entry : blocks_) {
    if (entry.second.waiting.empty()) continue;
    if (entry.second.ahead) return &entry;
    if (first == nullptr || entry.second.has_turn) first = &entry;
  }
  return first;
}

bool ScheduleOracle::RestIsDue() const {
  const auto rests = std::count_if(turns_.begin(), turns_.end(), [](const Turn& turn) { return turn.rest; });
  return rests > 0 && overtook_ >= budget_ / rests;
}

bool ScheduleOracle::MayOvertake() const {
  return std::all_of(turns_.begin(), turns_.end(), [](const Turn& turn) { return turn.rest; }) && !RestIsDue();
}

std::optional<uint64_t> ScheduleOracle::NextTurn() const {
  if (turns_.empty()) return std::nullopt;
  if (turns_.front().since + std::chrono::seconds(3) <= now_) return turns_.front().tag;
  const Turn* first = nullptr;
  for (const Turn& turn : turns_) {
    const bool older = first != nullptr && calls_.at(turn.tag).block < calls_.at(first->tag).block;
    if (!turn.rest && (first == nullptr || older)) first = &turn;
  }
  const auto is_rest = [](const Turn& turn) { return turn.rest; };
  if (first == nullptr || RestIsDue()) return std::find_if(turns_.begin(), turns_.end(), is_rest)->tag;
  return first->tag;
}

// Beside room for the headers of a full window, and of all that is out.
bool ScheduleOracle::MayGrant(const Call& call) const {
  const int64_t cost = CostOf(call.outstanding + PartOf(Rest(call))) - CostOf(call.outstanding);
  if (!granting()) return Alone() || Fits(cost);
  const int64_t more_of_window = std::max<int64_t>(window_ * HeaderCost() - YoungHeaderBytes(), 0);
  return Alone() || Fits(cost + HeaderBytes() + more_of_window);
}

bool ScheduleOracle::MayGoEarly(const Call& call, int64_t bytes) const {
  const int64_t share = budget_ / 3;
  int64_t asked = 0;
  for (const Call& other : calls_) asked += StillToCome(other);
  return bytes == PartOf(call.expected) && (asked <= share || any_ready_) && MayOvertake() &&
         EarlyBytes() + CostOf(bytes) <= share && CostOf(options_.profile.packet_payload_bytes) <= share &&
         Fits(CostOf(bytes) + HeaderBytes(1, CostOf(bytes)));
}

// Where workers are fast enough for it otherwise, the schedule knows.
bool ScheduleOracle::MustGoEarly(const Call& call) const {
  int64_t asked = 0;
  for (const Call& other : calls_) asked += StillToCome(other);
  return asked <= budget_ / 3 && MayGoEarly(call, PartOf(call.expected));
}

// The window is open and the headers fit beside what is granted; or only silent workers are out.
bool ScheduleOracle::MayAsk() const {
  if (!turns_.empty() && Alone()) return false;
  const int64_t young = YoungHeaderBytes() / HeaderCost();
  if (young == 0 && Alone()) return true;
  return young + CallsIn(Call::kReady) < window_ && Fits(HeaderBytes() + HeaderCost());
}

// While nothing is ready and nothing granted, the requests in stock may wait.
bool ScheduleOracle::MustAsk() const {
  constexpr int64_t kStock = 4;
  const int64_t young = YoungHeaderBytes() / HeaderCost();
  return MayAsk() && (!Alone() || young == 0 || young + kStock < window_);
}

bool ScheduleOracle::MayLeaveWith(const Call& call, bool ahead, int64_t bytes) const {
  if (!limited()) return bytes == int64_t{1} << 32;
  const int64_t cost = CostOf(bytes);
  if (ahead) return bytes == call.expected && (Alone() || Fits(cost + (granting() ? HeaderBytes() : 0)));
  if (granting()) return bytes == 0 ? MayAsk() : MayGoEarly(call, bytes);
  if (!MayOvertake()) return false;
  if (bytes == call.expected && Fits(cost)) return true;
  return Alone() && bytes == (batched() ? call.expected : PartOf(call.expected));
}

bool ScheduleOracle::MustLeave(const Call& call, bool ahead) const {
  if (!limited()) return true;
  if (granting() && !ahead) return MustAsk() || MustGoEarly(call);
  if (!ahead && !MayOvertake()) return false;
  return Alone() || Fits(CostOf(call.expected) + (granting() ? HeaderBytes() : 0));
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
  const auto transmission = (profile.frame_bytes + profile.ack_frame_bytes) * Packets(payload_bytes) * byte_time_;
  const auto step = absl::ToChronoNanoseconds(profile.timer_granularity);
  return (transmission + 2 * DrainTime() + jitter_ + step - std::chrono::nanoseconds(1)) / step * step;
}

std::chrono::nanoseconds ScheduleOracle::DrainTime() const {
  return absl::ToChronoNanoseconds(options_.profile.propagation_rtt) + buffer_ * byte_time_;
}

}  // namespace sluice
