#include "lib/scheduling/link_observer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "sluice/plan.h"

#include "absl/time/time.h"
#include "lib/scheduling/schedule_events.h"

namespace sluice {
namespace {

using std::chrono::nanoseconds;

// How far a value moves the median.
constexpr double kStep = 1.0 / 16;
// The shortest silence of a sender that repairs a loss without a timeout. It probes the tail after two round trips (RFC
// 8985), or waits for the acknowledgement of one repeated packet, which Linux may delay by 40 ms. On a test network the
// silences were 20 ms and more; shorter ones are pauses of busy processors.
constexpr nanoseconds kLeastRepair = std::chrono::milliseconds(15);
// The width of evenly distributed values, in median distances from the median.
constexpr double kWidth = 4;

nanoseconds Nanoseconds(double ns) {
  constexpr double kMaxNs = 1e18;
  return nanoseconds(std::llround(std::min(ns, kMaxNs)));
}

}  // namespace

void LinkObserver::Spread::Observe(double value_ns) {
  if (median_ns == 0) {
    median_ns = std::max(value_ns, 1.0);
    distance_ns = median_ns * kStep;
    return;
  }
  const double distance_now_ns = std::abs(value_ns - median_ns);
  distance_ns *= distance_now_ns > distance_ns ? 1 + kStep : 1 - kStep;
  distance_ns = std::max(distance_ns, 1.0);
  median_ns = std::max(
      median_ns + std::copysign(std::min(distance_ns * kStep * 2, distance_now_ns), value_ns - median_ns), 1.0);
}

LinkObserver::LinkObserver(const LinkProfile& profile) : link_(TimePoint()) {
  SetProfile(profile);
}

void LinkObserver::SetProfile(const LinkProfile& profile) {
  profile_ = profile;
  bytes_per_ns_ = profile.capacity_bytes_per_second / 1e9;
  buffer_bytes_ = BufferBudgetBytes(profile);
  const auto packet_ns = static_cast<double>(profile.frame_bytes) / bytes_per_ns_;
  const double rtt_ns = absl::ToDoubleNanoseconds(profile.propagation_rtt);
  alone_ = Nanoseconds(std::max(rtt_ns, 2 * packet_ns));
  repair_time_ = std::max(kLeastRepair, Nanoseconds(rtt_ns + static_cast<double>(buffer_bytes_) / bytes_per_ns_));
}

int64_t LinkObserver::RoomBytes() const {
  constexpr double kMaxBytes = 1e15;
  const double spread_bytes = std::min(kWidth * ready_.distance_ns * bytes_per_ns_, kMaxBytes);
  return buffer_bytes_ + static_cast<int64_t>(spread_bytes);
}

nanoseconds LinkObserver::TypicalReady() const {
  return Nanoseconds(ready_.median_ns);
}

void LinkObserver::Advance(TimePoint now) {
  now = std::max(now, now_);
  if (!responses_.empty()) {
    uncovered_.Add(now_, now);
    seen_.busy_time += now - now_;
  }
  now_ = now;
}

void LinkObserver::SetLevel(TimePoint now, int64_t in_flight_bytes) {
  if (above_) above_until_ = now;
  above_ = in_flight_bytes > RoomBytes();
  if (above_) above_until_ = now;
}

void LinkObserver::CountHeld(ObservedResponse& response, int64_t more_bytes, int64_t in_flight_bytes) {
  const int64_t excess_bytes = std::min(more_bytes, in_flight_bytes - RoomBytes());
  if (excess_bytes <= 0) return;
  seen_.held_bytes += excess_bytes;
  if (!response.held) ++seen_.held_responses;
  response.held = true;
}

void LinkObserver::OnBegin(TimePoint now, ObservedResponse& response, uint32_t worker, int64_t cost_bytes,
                           int64_t in_flight_bytes) {
  Advance(now);
  response.worker = worker;
  response.held = response.ready = response.silent = response.timed_out = false;
  response.began = response.heard = response.ready_at = now_;
  response.carried_before_ns = carried_ns_;
  response.lost = response.unsure = nanoseconds(0);
  response.bytes = response.first_bytes = 0;
  responses_.push_back(response);
  CountHeld(response, cost_bytes, in_flight_bytes);
  SetLevel(now_, in_flight_bytes);
}

// After a first wait, later ones follow from it: all senders of a full buffer repeat their packets at the same time.
void LinkObserver::Hear(TimePoint now, ObservedResponse& response) {
  const nanoseconds silence = now - response.heard;
  const bool waited = response.lost + response.unsure > nanoseconds(0);
  const bool overflowed = above_ || above_until_ >= response.heard;
  const bool timed_out = silence >= WorkerLoad::kPause && (waited || overflowed);
  const bool repaired = silence >= repair_time_ && (waited || (response.ready && overflowed));
  if (timed_out || repaired) {
    const nanoseconds usual = response.ready ? nanoseconds(0) : TypicalReady();
    const bool certain = timed_out ? response.ready || response.silent : response.unsure.count() == 0;
    (certain ? response.lost : response.unsure) += std::max(silence - usual, nanoseconds(0));
    response.timed_out = response.timed_out || (timed_out && certain);
  }
  response.heard = now;
  response.silent = false;
}

void LinkObserver::OnReady(TimePoint now, ObservedResponse& response, int64_t more_bytes, int64_t in_flight_bytes) {
  Advance(now);
  Hear(now_, response);
  if (response.lost + response.unsure == nanoseconds(0)) {
    const auto waited_ns = static_cast<double>((now_ - response.began).count());
    ready_.Observe(std::max(waited_ns - (carried_ns_ - response.carried_before_ns), 0.0));
  }
  response.ready = true;
  response.ready_at = now_;
  CountHeld(response, more_bytes, in_flight_bytes);
  SetLevel(now_, in_flight_bytes);
}

void LinkObserver::OnReceived(TimePoint now, ObservedResponse& response, int64_t bytes, int64_t in_flight_bytes) {
  Advance(now);
  Hear(now_, response);
  if (now_ - response.ready_at < alone_ || response.bytes == 0) response.first_bytes += bytes;
  response.bytes += bytes;
  carried_ns_ += static_cast<double>(WireBytes(profile_, std::max<int64_t>(bytes, 1))) / bytes_per_ns_;
  SetLevel(now_, in_flight_bytes);
}

void LinkObserver::OnEnd(TimePoint now, ObservedResponse& response, int64_t in_flight_bytes) {
  if (!response.observed()) return;
  Advance(now);
  TimePoint end = now_;
  if (response.ready) {
    const int64_t packet_bytes = profile_.packet_payload_bytes;
    if (response.unsure.count() > 0 && response.bytes > packet_bytes && response.first_bytes <= packet_bytes) {
      response.lost += response.unsure;
      response.timed_out = true;
    }
    const double link_ns =
        static_cast<double>(WireBytes(profile_, std::max<int64_t>(response.bytes, 1))) / bytes_per_ns_;
    const TimePoint carried =
        link_.TakeFirst(std::max(response.ready_at - response.lost, response.began), Nanoseconds(link_ns));
    end = std::min(end, std::max(carried, now_ - response.lost));
    ++seen_.responses;
    seen_.response_bytes += response.bytes;
    if (response.timed_out) ++seen_.lost_responses;
  }
  uncovered_.Take(response.began, end);
  responses_.erase(responses_.iterator_to(response));
  SetLevel(now_, in_flight_bytes);
  Settle(now_);
}

// No response on its way began before.
void LinkObserver::Settle(TimePoint now) {
  const TimePoint settled = responses_.empty() ? now : responses_.front().began;
  seen_.lost_time += uncovered_.TakeBefore(settled);
  link_.TakeBefore(settled);
}

void LinkObserver::OnSilence(absl::Span<const uint32_t> workers) {
  std::vector<uint32_t> sorted(workers.begin(), workers.end());
  std::sort(sorted.begin(), sorted.end());
  for (ObservedResponse& response : responses_) {
    if (std::binary_search(sorted.begin(), sorted.end(), response.worker)) response.silent = true;
  }
}

void LinkObserver::Stop(TimePoint now) {
  Advance(now);
  responses_.clear();
  uncovered_ = FreeTime();
  above_ = false;
  Settle(now_);
}

}  // namespace sluice
