#include "tests/unit/calibrate/simulated_port.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <queue>

namespace sluice::testing {
namespace {

constexpr int64_t kPayloadBytes = 1448;
constexpr int64_t kHeaderBytes = 66;
constexpr double kRtoSeconds = 0.2;
constexpr double kWindowSeconds = 0.04;

struct Packet {
  int answer = 0;
  int64_t bytes = 0;
};

// One loop, event by event. Times are seconds from its start. One for each loop. Not thread-safe.
class Simulation {
 public:
  Simulation(const SimulatedPortOptions& options, const ClosedLoop& loop, std::mt19937& random,
             std::function<double()> gap)
      : options_(options),
        fill_seconds_(absl::ToDoubleSeconds(loop.fill_interval)),
        end_(absl::ToDoubleSeconds(loop.duration) + (loop.in_flight - 1) * fill_seconds_),
        random_(random),
        gap_(std::move(gap)),
        tokens_(static_cast<double>(options.bucket_bytes)) {
    for (int64_t left = loop.payload_bytes; left > 0; left -= kPayloadBytes) {
      packets_.push_back(std::min(left, kPayloadBytes) + kHeaderBytes);
      answer_bytes_ += packets_.back();
    }
    missing_.resize(static_cast<size_t>(loop.in_flight));
    for (int answer = 0; answer < loop.in_flight; ++answer) Ask(answer, answer * fill_seconds_);
  }

  LoopSample Run() {
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      tokens_ = std::min(tokens_ + (event.seconds - now_) * options_.rate_bytes_per_second,
                         static_cast<double>(options_.bucket_bytes));
      now_ = event.seconds;
      event.is_departure ? Depart() : Arrive(event.packet);
    }
    sample_.in_flight_bytes = static_cast<int64_t>(missing_.size()) * answer_bytes_;
    return sample_;
  }

  double seconds() const { return now_; }

 private:
  struct Event {
    double seconds = 0;
    bool is_departure = false;
    Packet packet;
    bool operator<(const Event& other) const { return seconds > other.seconds; }
  };

  void Ask(int answer, double seconds) {
    double due = seconds + gap_();
    missing_[static_cast<size_t>(answer)] = static_cast<int>(packets_.size());
    for (const int64_t bytes : packets_) {
      events_.push({due, false, {answer, bytes}});
      due += static_cast<double>(bytes) / options_.access_rate_bytes_per_second;
    }
  }

  void Arrive(const Packet& packet) {
    const bool other_loss = std::uniform_real_distribution<>()(random_) < options_.other_loss;
    if (other_loss || queued_bytes_ + packet.bytes > options_.buffer_bytes) {
      ++sample_.lost_packets;
      events_.push({now_ + kRtoSeconds, false, packet});
      return;
    }
    queue_.push_back(packet);
    queued_bytes_ += packet.bytes;
    if (queue_.size() == 1) ScheduleDeparture();
  }

  // A packet stays in the buffer until there are tokens for all its bytes.
  void ScheduleDeparture() {
    const double wanted = static_cast<double>(queue_.front().bytes) - tokens_;
    events_.push({now_ + std::max(wanted, 0.0) / options_.rate_bytes_per_second, true, {}});
  }

  void Depart() {
    const Packet packet = queue_.front();
    queue_.pop_front();
    queued_bytes_ -= packet.bytes;
    tokens_ -= static_cast<double>(packet.bytes);
    Count(packet.bytes);
    if (!queue_.empty()) ScheduleDeparture();
    int& missing = missing_[static_cast<size_t>(packet.answer)];
    if (--missing == 0 && now_ < end_) Ask(packet.answer, now_);
  }

  void Count(int64_t bytes) {
    window_bytes_ += bytes;
    const double full = fill_seconds_ * (static_cast<double>(missing_.size()) - 1);
    if (now_ < full || now_ < window_begin_ + kWindowSeconds || now_ > end_) return;
    // Skip the first window, which begins before all responses are in flight.
    if (window_begin_ > 0) sample_.windows.push_back({window_bytes_, absl::Seconds(now_ - window_begin_)});
    window_begin_ = now_;
    window_bytes_ = 0;
  }

  const SimulatedPortOptions& options_;
  const double fill_seconds_;
  const double end_;
  std::mt19937& random_;
  const std::function<double()> gap_;
  std::vector<int64_t> packets_;  // bytes of each packet of a response
  int64_t answer_bytes_ = 0;
  std::vector<int> missing_;  // missing packets of each response
  std::priority_queue<Event> events_;
  std::deque<Packet> queue_;
  int64_t queued_bytes_ = 0;
  double tokens_ = 0;
  double now_ = 0;
  double window_begin_ = 0;
  int64_t window_bytes_ = 0;
  LoopSample sample_;
};

}  // namespace

double SimulatedPort::GapSeconds() {
  const double extra = absl::ToDoubleSeconds(options_.mean_extra_gap);
  const double above = extra > 0 ? std::exponential_distribution<>(1 / extra)(random_) : 0;
  return absl::ToDoubleSeconds(options_.least_gap) + above;
}

absl::StatusOr<PathFacts> SimulatedPort::LookAtPath() {
  return PathFacts{.hosts = options_.hosts,
                   .same_host = options_.same_host,
                   .counts_losses = options_.counts_losses,
                   .mtu_bytes = 1500,
                   .packet_payload_bytes = kPayloadBytes,
                   .frame_bytes = kPayloadBytes + kHeaderBytes,
                   .ack_frame_bytes = kHeaderBytes};
}

absl::StatusOr<TimerSamples> SimulatedPort::MeasureTimers() {
  TimerSamples samples;
  for (int i = 1; i <= 1000; ++i) samples.lateness.push_back(absl::Microseconds(i));
  samples.steps.assign(100, absl::Microseconds(20));
  elapsed_ += absl::Seconds(1);
  return samples;
}

absl::StatusOr<RoundTripSamples> SimulatedPort::MeasureRoundTrips() {
  RoundTripSamples samples;
  for (int i = 0; i < 100; ++i) {
    samples.kernel.push_back(options_.rtt + absl::Microseconds(5 + i % 10));  // the closed loops see the minimum
    samples.answers.push_back(absl::Seconds(GapSeconds()));
  }
  elapsed_ += absl::Seconds(1);
  return samples;
}

absl::StatusOr<LoopSample> SimulatedPort::RunLoop(const ClosedLoop& loop) {
  loops_.push_back(loop);
  Simulation simulation(options_, loop, random_, [this] { return GapSeconds(); });
  LoopSample sample = simulation.Run();
  sample.round_trips.assign(static_cast<size_t>(loop.in_flight), options_.rtt);
  sample.process_share = options_.process_share;
  sample.host_share = options_.host_share;
  if (!options_.counts_losses) sample.lost_packets = 0;
  most_in_flight_bytes_ = std::max(most_in_flight_bytes_, sample.in_flight_bytes);
  elapsed_ += absl::Seconds(simulation.seconds());
  return sample;
}

}  // namespace sluice::testing
