#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice {

// Samples of this host's timers, used as in the library.
struct TimerSamples {
  std::vector<absl::Duration> lateness;  // delay after the time that each timer was set to
  std::vector<absl::Duration> steps;     // time between distinct firing times of timers that were set close together
};

struct RoundTripSamples {
  std::vector<absl::Duration> kernel;   // the smallest round trip that TCP measured on each connection
  std::vector<absl::Duration> answers;  // time from the request to the smallest response, one at a time
};

// Describes the path to the workers.
struct PathFacts {
  int hosts = 0;               // number of hosts of workers
  bool same_host = false;      // workers are on this host, without a port in between
  bool counts_losses = false;  // workers report the losses of their TCP
  // The sizes of TCP's packets, as in LinkProfile.
  int64_t mtu_bytes = 0;
  int64_t packet_payload_bytes = 0;
  int64_t frame_bytes = 0;
  int64_t ack_frame_bytes = 0;
  std::vector<std::string> notes;  // workers that are left out, and the reasons
};

// A closed loop: responses of one size over new connections, with a fixed number in flight. When one has arrived, the
// next is requested.
struct ClosedLoop {
  int in_flight = 1;
  int64_t payload_bytes = 0;     // of each response
  absl::Duration fill_interval;  // time between the first requests of consecutive places in the loop; 0: all at once
  absl::Duration duration;       // while all places are filled
};

// The bytes that arrived in a part of a loop, including headers and acknowledgements.
struct WireWindow {
  int64_t bytes = 0;
  absl::Duration elapsed;

  double BytesPerSecond() const { return static_cast<double>(bytes) / absl::ToDoubleSeconds(elapsed); }
};

struct LoopSample {
  std::vector<absl::Duration> round_trips;  // as RoundTripSamples::kernel, of the connections before the loop
  int64_t in_flight_bytes = 0;              // on the wire
  std::vector<WireWindow> windows;          // while all places were filled
  int64_t lost_packets = 0;                 // that the workers retransmitted because they had not arrived
  double process_share = 0;                 // share of one CPU that this process used
  double host_share = 0;                    // share of all CPUs of this host in use
};

// Measures a real path, or a simulated one of a test. Errors end the calibration; Cancelled reports that the user ended
// it. Not thread-safe.
class Prober {
 public:
  virtual ~Prober() = default;

  virtual absl::StatusOr<PathFacts> LookAtPath() = 0;
  virtual absl::StatusOr<TimerSamples> MeasureTimers() = 0;
  virtual absl::StatusOr<RoundTripSamples> MeasureRoundTrips() = 0;
  virtual absl::StatusOr<LoopSample> RunLoop(const ClosedLoop& loop) = 0;
  virtual absl::Duration Elapsed() const = 0;  // since it was created
};

}  // namespace sluice
