#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "sluice/time_point.h"

namespace sluice {

// Decides whether a worker that sends nothing while calls are out is alive. The kernel of a frozen process (SIGSTOP, a
// debugger, a hung disk) still acknowledges packets and TCP's probes, but only the process answers an HTTP/2 PING. One
// for each connection, which looks every kLookEvery while calls are out. Not thread-safe.
//
// gRPC's servers end a connection with more than a few PINGs. They count one that comes within five minutes of the last
// one, unless they have sent HEADERS or DATA in between (grpc-go's EnforcementPolicy.MinTime, gRPC's
// http2.min_ping_interval_without_data_ms). So a second PING waits for a frame of a stream, or for kPingEvery. A worker
// that answers a PING and then freezes, before it sends a frame of a stream, is therefore noticed only after that time.
class SilenceWatch {
 public:
  static constexpr std::chrono::seconds kLookEvery{4};
  static constexpr int kLooksBeforePing = 3;  // silent for 12 to 16 s
  static constexpr int kLooksForAnswer = 2;   // given up after 20 to 24 s
  static constexpr std::chrono::minutes kPingEvery{6};

  enum class Verdict { kAlive, kPing, kFrozen };

  // Counts what the connection has received since it began.
  struct Received {
    uint64_t bytes = 0;
    uint64_t stream_frames = 0;  // HEADERS and DATA
  };

  // Calls are out, and none were before: the silence begins.
  void Begin(const Received& received);
  // After kPing the caller sends a PING. After kFrozen the connection is useless.
  Verdict Look(TimePoint now, const Received& received);

 private:
  bool MayPing(TimePoint now, uint64_t stream_frames) const;

  struct Ping {
    TimePoint at;
    uint64_t stream_frames = 0;  // received before
  };

  uint64_t bytes_ = 0;  // at the last look
  int silent_looks_ = 0;
  std::optional<int> unanswered_looks_;  // since the PING; none: no PING is unanswered
  std::optional<Ping> last_ping_;
};

}  // namespace sluice
