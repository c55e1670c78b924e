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
#include "tests/simulation/worker_session.h"

namespace sluice::testing {

// An application that asks workers through a proxy, in virtual time: a client of HTTP/2 on one loopback connection,
// whose buffers in the kernel are bounded. It knows what the answers have to be. One for each connection.
class SimulatedClient final : private SessionEvents, public std::enable_shared_from_this<SimulatedClient> {
 public:
  enum class Habit {
    kReads,
    kKeepsWindows,  // it reads its socket, and never opens a window again
    kReadsNothing,  // not even its socket
  };
  struct Request {
    std::string worker;
    Question question;
    TimePoint deadline;
    HeaderList metadata;
    bool in_two_parts = false;  // the message leaves behind its headers
  };
  // How a call ended, and whether all of the right answer was here. No status: the client gave it up, or lost its
  // connection.
  struct Outcome {
    std::optional<absl::StatusCode> code;
    bool right = false;
    size_t bytes = 0;
  };
  using OnOutcome = std::function<void(const Outcome&)>;

  // All of these outlive it.
  SimulatedClient(EventQueue& events, Dice& dice, SimulatedExecutor& executor, Habit habit);
  ~SimulatedClient() override;

  // The proxy's end of the connection. Called once.
  AcceptedSocket Connect();

  // Asks; returns the stream, or 0 if the connection takes no more calls.
  int32_t Ask(const Request& request, OnOutcome on_outcome);
  void Cancel(int32_t stream);
  // The process is gone, and its connection with it.
  void Die();

  Habit habit() const { return habit_; }
  bool dying() const { return dead_; }
  bool over() const { return session_ == nullptr; }

 private:
  class Call;
  class ProxyEnd;

  StreamEvents* OnStream(int32_t) override { return nullptr; }
  void FromProxy(std::string bytes);
  void Read();
  void Flush();
  void Lose();
  void TellProxy(absl::string_view bytes);
  void EndOfProxy();
  void Deliver();

  EventQueue& events_;
  Dice& dice_;
  SimulatedExecutor& executor_;
  const Habit habit_;
  const SimulatedExecutor::Source source_;
  std::unique_ptr<Http2Session> session_;  // null: not connected, or over
  std::map<int32_t, std::unique_ptr<Call>> calls_;
  std::map<int32_t, std::unique_ptr<Call>> gone_;  // destroyed once nothing of them is on the stack
  std::string to_client_;                          // that it has not read
  std::string to_proxy_;                           // that the proxy has not read
  bool reading_ = false;                           // Read is under way to its time
  bool delivering_ = false;                        // the same for the proxy
  bool dead_ = false;                              // the proxy hears so, behind what was said
  StreamSocketEvents* proxy_ = nullptr;            // null: the proxy has closed its end
  bool proxy_reads_ = true;
};

}  // namespace sluice::testing
