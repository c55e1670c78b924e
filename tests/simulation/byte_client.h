#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/byte_worker.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/simulated_executor.h"
#include "tests/simulation/simulated_loopback.h"

namespace sluice::testing {

// A client that reaches a byte worker by CONNECT through the proxy, and checks every byte of the responses. There is
// one for each tunnel.
class ByteClient final {
 public:
  struct Outcome {
    bool complete = false;
    bool right = true;  // all bytes that came
  };
  using OnOutcome = std::function<void(const Outcome&)>;

  // The arguments must outlive the client.
  ByteClient(EventQueue& events, SimulatedExecutor& executor, std::string worker);
  ~ByteClient();

  // Returns the proxy's end of the connection. Call it once.
  AcceptedSocket Connect() { return loopback_->Accept(); }

  // Sends requests without waiting for the responses in between, and waits for all of them. The previous requests must
  // have ended.
  void Ask(const std::vector<ByteRequest>& requests, OnOutcome on_outcome);
  void SetReading(bool reading) { loopback_->SetReading(reading); }
  void Die();

  bool busy() const { return on_outcome_ != nullptr; }
  bool over() const { return over_; }

 private:
  void OnBytes(const std::string& bytes);
  void End(bool complete);

  const std::string worker_;
  const std::shared_ptr<SimulatedLoopback> loopback_;
  bool open_ = false;  // the proxy has accepted the CONNECT
  bool over_ = false;
  bool right_ = true;
  std::string head_;      // the received part of the response to the CONNECT
  std::string unsent_;    // requests before that
  std::string expected_;  // the rest of the responses
  OnOutcome on_outcome_;
};

}  // namespace sluice::testing
