#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice {

// How timers of this host fire, as the library uses them.
struct TimerSamples {
  std::vector<absl::Duration> lateness;  // after the time that each was set to
  std::vector<absl::Duration> steps;     // between two times at which timers fired that were set close to each other
};

struct RoundTripSamples {
  std::vector<absl::Duration> kernel;   // the least that TCP measured, of each connection
  std::vector<absl::Duration> answers;  // of the smallest answers, one at a time: from the request to the answer
};

// Describes the way to the workers.
struct PathFacts {
  int hosts = 0;               // that workers are on
  bool same_host = false;      // as we: no port between
  bool counts_losses = false;  // workers tell what their TCP lost
  // The sizes of TCP's packets, as in LinkProfile.
  int64_t mtu_bytes = 0;
  int64_t packet_payload_bytes = 0;
  int64_t frame_bytes = 0;
  int64_t ack_frame_bytes = 0;
  std::vector<std::string> notes;  // workers that are left out, and why
};

// A closed loop: answers of one size over new connections, of which a fixed number is in flight. When one has come, the
// next is asked for.
struct ClosedLoop {
  int in_flight = 1;
  int64_t payload_bytes = 0;     // of each answer
  absl::Duration fill_interval;  // from the first request of one place in the loop to that of the next; 0: all at once
  absl::Duration duration;       // with everything in flight
};

// What arrived in a part of a loop, headers and acknowledgements included.
struct WireWindow {
  int64_t bytes = 0;
  absl::Duration elapsed;

  double BytesPerSecond() const { return static_cast<double>(bytes) / absl::ToDoubleSeconds(elapsed); }
};

struct LoopSample {
  std::vector<absl::Duration> round_trips;  // as RoundTripSamples::kernel, of the connections before the loop
  int64_t in_flight_bytes = 0;              // on the wire
  std::vector<WireWindow> windows;          // while everything was in flight
  int64_t lost_packets = 0;                 // that the workers had to send again, and that had not arrived
  double process_share = 0;                 // of one processor, that this process used
  double host_share = 0;                    // of all processors of this host, that were used
};

// Measures on a real path, or on one that a test makes up. Errors end the calibration, and so does Cancelled, if the
// user wants it to end. Not thread-safe.
class Prober {
 public:
  virtual ~Prober() = default;

  virtual absl::StatusOr<PathFacts> LookAtPath() = 0;
  virtual absl::StatusOr<TimerSamples> MeasureTimers() = 0;
  virtual absl::StatusOr<RoundTripSamples> MeasureRoundTrips() = 0;
  virtual absl::StatusOr<LoopSample> RunLoop(const ClosedLoop& loop) = 0;
  virtual absl::Duration Elapsed() const = 0;  // since it was made
};

}  // namespace sluice
