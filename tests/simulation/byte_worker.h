#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/liveness.h"
#include "tests/simulation/receive_window.h"
#include "tests/simulation/simulated_port.h"
#include "tests/simulation/simulated_stream.h"
#include "tests/simulation/simulated_uplink.h"

namespace sluice::testing {

// A request to a byte worker, one line of text. It says what the worker does.
struct ByteRequest {
  enum class Then { kAnswers, kStops, kLosesConnection };
  uint64_t key = 0;
  size_t bytes = 0;  // of the response: AnswerOf(key, bytes)
  std::chrono::microseconds thinking{0};
  // The response pauses after so many bytes. The worker then continues, or fails.
  size_t pause_after = 0;
  std::chrono::microseconds pause{0};
  Then then = Then::kAnswers;
};
std::string LineOf(const ByteRequest& request);
// Takes all whole requests from the beginning of `received`. Returns InvalidArgument if one is malformed.
absl::StatusOr<std::vector<ByteRequest>> TakeRequests(std::string& received);

// A worker of a simulated world that speaks a protocol of its own, behind the port. It answers the requests of a
// connection one after the other. There is one for each address.
class ByteWorker {
 public:
  // The arguments must outlive the worker. `delay` is one way.
  ByteWorker(EventQueue& events, SimulatedPort& port, Liveness& liveness, TimePoint::duration delay)
      : events_(events), port_(port), liveness_(liveness), delay_(delay), uplink_(events) {}

  // Accepts a connection with a receive window of `window_bytes`. The proxy writes into `to_worker` of the result.
  struct Wire {
    std::shared_ptr<SimulatedPipe> to_worker;
    std::shared_ptr<SimulatedPipe> to_client;
    std::shared_ptr<ReceiveWindow> window;
  };
  Wire Accept(int64_t window_bytes, std::function<void(absl::string_view)> on_bytes,
              std::function<void(absl::Status)> on_end);

  SimulatedUplink& uplink() { return uplink_; }

 private:
  class Connection;

  EventQueue& events_;
  SimulatedPort& port_;
  Liveness& liveness_;
  const TimePoint::duration delay_;
  SimulatedUplink uplink_;
};

}  // namespace sluice::testing
