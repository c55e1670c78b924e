#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "lib/proxy/client_connection.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/simulated_executor.h"

namespace sluice::testing {

// A loopback connection of a client to the proxy, with bounded kernel buffers, in virtual time. There is one for each
// connection.
class SimulatedLoopback final : public std::enable_shared_from_this<SimulatedLoopback> {
 public:
  // The client. Called between the turns of the proxy.
  struct Client {
    std::function<void()> on_connected;
    std::function<void(const std::string& bytes)> on_bytes;
    std::function<void()> on_closed;  // by the proxy, after all of its bytes
  };
  // The arguments must outlive the connection.
  SimulatedLoopback(EventQueue& events, SimulatedExecutor& executor, Client client);

  // Returns the proxy's end. Call it once.
  AcceptedSocket Accept();

  void Write(absl::string_view bytes);
  // Whether the client reads. It does at first.
  void SetReading(bool reading);
  // The client closes its end, and gets no event any more. The proxy receives the end after all bytes.
  void Close();

 private:
  class ProxyEnd;

  void FromProxy(const std::string& bytes);
  void ReadLater();
  void Read();
  void Deliver();
  void EndOfProxy();

  EventQueue& events_;
  SimulatedExecutor& executor_;
  const SimulatedExecutor::Source source_;
  Client client_;
  bool closed_ = false;  // by the client
  bool client_reads_ = true;
  bool proxy_reads_ = true;
  bool read_queued_ = false;
  bool delivery_queued_ = false;
  std::string to_client_;                // bytes that the client has not read
  std::string to_proxy_;                 // bytes that the proxy has not read
  StreamSocketEvents* proxy_ = nullptr;  // null: the proxy has closed its end
};

}  // namespace sluice::testing
