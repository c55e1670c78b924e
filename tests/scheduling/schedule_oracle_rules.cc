// What the oracle goes by: costs, times, and who may leave.
#include <algorithm>

#include "absl/time/time.h"
#include "tests/scheduling/schedule_oracle.h"

namespace sluice {

int64_t ScheduleOracle::CallsIn(int phase) const {
  return std::count_if(calls_.begin(), calls_.end(), [phase](const Call& call) { return call.phase == phase; });
}

int64_t ScheduleOracle::HeaderBytes() const {
  return CallsIn(Call::kSent) * HeaderCost();
}

int64_t ScheduleOracle::InFlightBytes() const {
  int64_t bytes = 0;
  for (const Call& call : calls_) bytes += call.charged;
  for (const auto& [until, cost] : draining_) bytes += cost;
  return bytes;
}

// All that is asked for fits a third of the budget, and nobody has to guess how large this is.
bool ScheduleOracle::MayGoGranted(const Call& call) const {
  if (!granting() || call.estimated) return false;
  int64_t asked = 0;
  for (const Call& other : calls_) asked += other.phase == Call::kEnded ? 0 : CostOf(other);
  return asked <= budget_ / 3 && InFlightBytes() + CostOf(call) + HeaderBytes() <= budget_;
}

// The window is open and the headers fit beside what is granted; or only stragglers are out.
bool ScheduleOracle::MayAsk() const {
  const int64_t young = CallsIn(Call::kSent) - stragglers_;
  if (young == 0 && InFlightBytes() == 0) return true;
  return young + CallsIn(Call::kReady) < window_ && InFlightBytes() + HeaderBytes() + HeaderCost() <= budget_;
}

// While nothing is ready and nothing granted, the requests in stock may wait.
bool ScheduleOracle::MustAsk() const {
  constexpr int64_t kStock = 4;
  const int64_t young = CallsIn(Call::kSent) - stragglers_;
  const bool first = CallsIn(Call::kReady) == 0 && InFlightBytes() == 0;
  return MayAsk() && (!first || young == 0 || young + kStock < window_);
}

int64_t ScheduleOracle::CostOf(const Call& call) const {
  const auto most = options_.max_in_flight_per_call_bytes;
  if (!most.has_value() || options_.discipline == Discipline::kUnscheduled) return call.answer;
  return std::min(call.answer, BufferBytes(*most));
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

// T~ = ceil((T + d_max) / Δt) · Δt with the T of a persistent connection: two rounds; and one more for each part above
// the first where a call is bounded.
std::chrono::nanoseconds ScheduleOracle::SlotOf(int64_t payload_bytes) const {
  const LinkProfile& profile = options_.profile;
  const auto transmission = (profile.frame_bytes + profile.ack_frame_bytes) * Packets(payload_bytes) * byte_time_;
  const auto step = absl::ToChronoNanoseconds(profile.timer_granularity);
  const auto round_up = [step](std::chrono::nanoseconds time) {
    return (time + step - std::chrono::nanoseconds(1)) / step * step;
  };
  const int64_t part = options_.max_in_flight_per_call_bytes.value_or(std::max<int64_t>(payload_bytes, 1));
  int64_t parts = 1;
  while (parts * part < payload_bytes) ++parts;
  return round_up(round_up(transmission + 2 * DrainTime() + jitter_) + (parts - 1) * DrainTime());
}

std::chrono::nanoseconds ScheduleOracle::DrainTime() const {
  return absl::ToChronoNanoseconds(options_.profile.propagation_rtt) + buffer_ * byte_time_;
}

}  // namespace sluice
