#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/tcp/socket_diag.h"
#include "tools/channel_security.h"
#include "tools/sluice_calibrate/prober.h"

namespace sluice {

// Measures this host, and the path to workers that serve the ProbeService.
class GrpcProber final : public Prober {
 public:
  // Calls `interrupted` often, and ends a measurement with Cancelled once it returns true. Returns Unavailable if the
  // kernel does not list this process's connections.
  static absl::StatusOr<std::unique_ptr<GrpcProber>> Create(std::vector<std::string> workers,
                                                            std::function<bool()> interrupted,
                                                            ChannelSecurity security = {});

  // Leaves out unreachable workers, and workers on this host if there are others, with a note. If no worker responds,
  // returns the error of one of them.
  absl::StatusOr<PathFacts> LookAtPath() override;
  absl::StatusOr<TimerSamples> MeasureTimers() override;
  absl::StatusOr<RoundTripSamples> MeasureRoundTrips() override;
  absl::StatusOr<LoopSample> RunLoop(const ClosedLoop& loop) override;
  absl::Duration Elapsed() const override { return absl::FromChrono(std::chrono::steady_clock::now() - created_); }

 private:
  GrpcProber(std::vector<std::string> workers, std::function<bool()> interrupted, ChannelSecurity security,
             SocketDiag socket_diag);

  struct Found {
    std::vector<std::string> local;   // workers on this host
    std::vector<std::string> remote;  // workers on other hosts
  };
  absl::StatusOr<Found> FindWorkers(PathFacts& path);

  std::vector<std::string> workers_;  // the responding workers, once LookAtPath has returned
  const std::function<bool()> interrupted_;
  const ChannelSecurity security_;
  SocketDiag socket_diag_;
  bool counts_losses_ = false;
  const std::chrono::steady_clock::time_point created_ = std::chrono::steady_clock::now();
};

}  // namespace sluice
