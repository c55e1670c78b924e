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
  // Asks `interrupted` often, and ends a measurement with Cancelled if it says so. Returns Unavailable if the kernel
  // does not show this process's connections.
  static absl::StatusOr<std::unique_ptr<GrpcProber>> Create(std::vector<std::string> workers,
                                                            std::function<bool()> interrupted,
                                                            ChannelSecurity security = {});

  // Leaves out workers that do not answer, and those on this host if there are others, with a note. Returns an error of
  // theirs if none answers.
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
    std::vector<std::string> remote;  // and on others
  };
  absl::StatusOr<Found> FindWorkers(PathFacts& path);

  std::vector<std::string> workers_;  // those that answer, once LookAtPath has returned
  const std::function<bool()> interrupted_;
  const ChannelSecurity security_;
  SocketDiag socket_diag_;
  bool counts_losses_ = false;
  const std::chrono::steady_clock::time_point created_ = std::chrono::steady_clock::now();
};

}  // namespace sluice
