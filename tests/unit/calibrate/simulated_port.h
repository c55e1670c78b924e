#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tools/sluice_calibrate/prober.h"

namespace sluice::testing {

// A switch port, packet by packet, in virtual time: a buffer with an exact size in bytes before a link, which may be a
// token bucket like tc's tbf. Workers send responses over access links, and retransmit lost packets after a timeout.
struct SimulatedPortOptions {
  double rate_bytes_per_second = 12.5e6;
  int64_t buffer_bytes = 32 << 10;
  int64_t bucket_bytes = 1514;                  // bytes that may be sent at once after a pause
  double access_rate_bytes_per_second = 125e6;  // rate of each worker
  int hosts = 8;
  bool same_host = false;
  bool counts_losses = true;
  // Time from a response to the arrival of the next response's first packet at the port: this minimum, plus an
  // exponential time.
  absl::Duration least_gap = absl::Microseconds(150);
  absl::Duration mean_extra_gap = absl::Microseconds(50);
  double other_loss = 0;  // share of packets lost for reasons other than the port
  absl::Duration rtt = absl::Microseconds(50);
  double process_share = 0.1;
  double host_share = 0.2;
  uint32_t seed = 1;
};

class SimulatedPort final : public Prober {
 public:
  using Options = SimulatedPortOptions;
  explicit SimulatedPort(const Options& options) : options_(options), random_(options.seed) {}

  absl::StatusOr<PathFacts> LookAtPath() override;
  absl::StatusOr<TimerSamples> MeasureTimers() override;
  absl::StatusOr<RoundTripSamples> MeasureRoundTrips() override;
  absl::StatusOr<LoopSample> RunLoop(const ClosedLoop& loop) override;
  absl::Duration Elapsed() const override { return elapsed_; }

  const std::vector<ClosedLoop>& loops() const { return loops_; }  // the loops that were run
  int64_t most_in_flight_bytes() const { return most_in_flight_bytes_; }

 private:
  double GapSeconds();

  const Options options_;
  std::mt19937 random_;
  absl::Duration elapsed_;
  std::vector<ClosedLoop> loops_;
  int64_t most_in_flight_bytes_ = 0;
};

}  // namespace sluice::testing
