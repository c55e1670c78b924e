#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tools/sluice_calibrate/prober.h"

namespace sluice::testing {

// A switch port, packet by packet, in virtual time: an exact buffer of bytes in front of a link, which may be a token
// bucket as tc's tbf is. Workers send answers over access links; what is lost they send again after a timeout.
struct SimulatedPortOptions {
  double rate_bytes_per_second = 12.5e6;
  int64_t buffer_bytes = 32 << 10;
  int64_t bucket_bytes = 1514;                  // that may leave at once after a pause
  double access_rate_bytes_per_second = 125e6;  // of each worker
  int hosts = 8;
  bool same_host = false;
  bool counts_losses = true;
  // From an answer to the moment at which the first packet of the next one reaches the port; exponential above the
  // least.
  absl::Duration least_gap = absl::Microseconds(150);
  absl::Duration mean_extra_gap = absl::Microseconds(50);
  double other_loss = 0;  // of packets, for reasons that are not the port's
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

  const std::vector<ClosedLoop>& loops() const { return loops_; }  // that were run
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
