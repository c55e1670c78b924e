#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/grpc_wire/metadata.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/liveness.h"
#include "tests/simulation/simulated_process.h"
#include "tests/simulation/simulated_stream.h"
#include "tests/simulation/simulated_uplink.h"
#include "tests/simulation/worker_session.h"

namespace sluice::testing {

// Returns the response to a request for `bytes`. Its content depends only on the key and the size.
std::string AnswerOf(uint64_t key, size_t bytes);

// A worker of a simulated world, behind the port: a gRPC server on Sluice's HTTP/2 session. It thinks, responds, and
// fails as the dice decide. There is one for each address.
class SimulatedWorker {
 public:
  struct Options {
    uint64_t fault_one_in = 0;  // one in this many requests fails; 0: none
    TimePoint::duration longest_think{0};
    TimePoint::duration delay{0};  // one way
    uint32_t max_concurrent_streams = 100;
    bool ends_at_deadline = true;  // ends calls at their deadlines by itself, as gRPC's servers do
    bool hung = false;             // accepts requests and never responds
    uint64_t hang_one_in = 0;      // it never responds to one in this many requests; 0: it always does
    bool fails = false;            // ends each call at once, with an error with large details
    bool slow = false;             // its uplink has a rate of its own at times
    // One in this many writes that arrive while responses wait for grants makes it pause. 0: it never pauses.
    uint64_t pause_one_in = 0;
    bool large_heads = false;  // half of its responses have large headers or trailers
  };
  SimulatedWorker(EventQueue& events, SimulatedPort& port, Dice& dice, FaultCounts& faults, Liveness& liveness,
                  size_t index, const Options& options);
  ~SimulatedWorker();

  // Accepts a connection. The client writes into `to_worker` of the result, and receives the worker's bytes by
  // `on_bytes`.
  struct Wire {
    std::shared_ptr<SimulatedPipe> to_worker;
    std::shared_ptr<SimulatedPipe> to_client;
  };
  Wire Accept(SimulatedPipe::ChargedUntil charged_until, std::function<void(absl::string_view)> on_bytes,
              std::function<void(absl::Status)> on_end);

  // Sends the server's part of a TLS handshake, for which the client charges its budget until then; `on_done` runs once
  // all of it has crossed the port.
  void Handshake(TimePoint charged_until, std::function<void()> on_done);

  void set_faulty(bool faulty) { faulty_ = faulty; }
  void set_failing(bool failing) { failing_ = failing; }  // ends every call with an error
  SimulatedUplink& uplink() { return uplink_; }

 private:
  class Connection;

  std::optional<Fault> DrawFault();
  void MayPause();
  Metadata DrawMetadata();
  Metadata LargeMetadata();

  EventQueue& events_;
  SimulatedPort& port_;
  Dice& dice_;
  FaultCounts& faults_;
  Liveness& liveness_;
  const Options options_;
  bool faulty_ = true;
  bool failing_ = false;
  size_t waiting_ = 0;  // responses that are ready and have not left
  SimulatedUplink uplink_;
  SimulatedProcess process_;
  const Liveness::Sender sender_;
  std::vector<std::shared_ptr<Connection>> connections_;
};

}  // namespace sluice::testing
