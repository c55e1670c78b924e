#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/http2/session.h"
#include "lib/net/executor.h"
#include "lib/proxy/client_connection.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/simulated_executor.h"
#include "tests/simulation/simulated_loopback.h"
#include "tests/simulation/worker_session.h"

namespace sluice::testing {

// An application that calls workers through a proxy, in virtual time. It is an HTTP/2 client on one loopback connection
// with bounded kernel buffers, and checks the content of responses. There is one for each connection.
class SimulatedClient final : private SessionEvents, public std::enable_shared_from_this<SimulatedClient> {
 public:
  enum class Habit {
    kReads,
    kKeepsWindows,  // it reads its socket, and never opens a window again
    kReadsNothing,  // it does not even read its socket
  };
  struct Request {
    std::string worker;
    Question question;
    TimePoint deadline;
    HeaderList metadata;
    bool in_two_parts = false;  // the message leaves after its headers
  };
  // How a call ended, and whether the whole right response arrived. `code` is empty if the client gave the call up, or
  // lost its connection.
  struct Outcome {
    std::optional<absl::StatusCode> code;
    bool right = false;
    size_t bytes = 0;
  };
  using OnOutcome = std::function<void(const Outcome&)>;

  // The arguments must outlive the client.
  SimulatedClient(EventQueue& events, Dice& dice, SimulatedExecutor& executor, Habit habit);
  ~SimulatedClient() override;

  // Returns the proxy's end of the connection. Call it once.
  AcceptedSocket Connect();

  // Starts a call. Returns its stream, or 0 if the connection accepts no more calls.
  int32_t Ask(const Request& request, OnOutcome on_outcome);
  void Cancel(int32_t stream);
  // Ends the process of the client, and its connection.
  void Die();

  Habit habit() const { return habit_; }
  bool dying() const { return dead_; }
  bool over() const { return session_ == nullptr; }

 private:
  class Call;

  StreamEvents* OnStream(int32_t) override { return nullptr; }
  void OnBytes(const std::string& bytes);
  void Flush();
  void Lose();

  EventQueue& events_;
  Dice& dice_;
  const Habit habit_;
  const std::shared_ptr<SimulatedLoopback> loopback_;
  std::unique_ptr<Http2Session> session_;  // null: not connected, or closed
  std::map<int32_t, std::unique_ptr<Call>> calls_;
  // Calls that have ended. They are deleted once none of their functions is on the stack.
  std::map<int32_t, std::unique_ptr<Call>> gone_;
  bool dead_ = false;
};

}  // namespace sluice::testing
