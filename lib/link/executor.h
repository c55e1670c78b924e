#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/link_schedule.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/telemetry/tcp_socket.h"

namespace sluice {

class TlsContext;

// What happens on one byte stream. Called on the link's thread, never from within a call of the stream's own methods.
class StreamSocketEvents {
 public:
  virtual ~StreamSocketEvents() = default;

  virtual void OnConnected() = 0;
  virtual void OnBytes(absl::string_view bytes) = 0;
  // The stream ended or was never made; why. Last of all. OK: the other side closed it in good order.
  virtual void OnDisconnected(absl::Status why) = 0;
};

// One byte stream to a worker, over TCP or a Unix socket, with TLS where that was asked for. Dropping it closes it, and
// its events are called no more. Used on the link's thread only.
class StreamSocket {
 public:
  virtual ~StreamSocket() = default;

  // After OnConnected. Bytes that the kernel does not take now are kept and follow.
  virtual void Write(std::string bytes) = 0;
  virtual size_t unsent_bytes() const = 0;
  // Of a TCP connection that stands; none elsewhere.
  virtual std::optional<TcpSocket> Tcp() const = 0;
};

// One address that a name stands for, printable: "10.0.0.1:7000", "[::1]:7000", "unix:/path".
struct WorkerAddress {
  std::string text;
  friend bool operator==(const WorkerAddress&, const WorkerAddress&) = default;
};

// The world as the link's thread sees it: time, timers, names and byte streams. There are two: the real one
// (AsioExecutor), and one of virtual time for tests. One a link. Everything but Post is for the link's thread, on which
// all callbacks run; none runs from within the call that asks for it.
class Executor {
 public:
  virtual ~Executor() = default;

  virtual TimePoint Now() const = 0;
  // Runs on the link's thread, after what was posted before. Thread-safe.
  virtual void Post(std::function<void()> task) = 0;
  // Runs once per turn of the loop, when everything that was ready in it has been handled: the place for writes, so
  // that one turn costs a connection one write. Set once.
  virtual void SetEndOfTurn(std::function<void()> task) = 0;
  // Calls `task` at or after `time`; takes the place of what was set before. TimePoint::max(): never.
  virtual void SetTimer(TimePoint time, std::function<void()> task) = 0;
  // From 0 to 1, uniform: back-off jitter.
  virtual double Random() = 0;

  // All addresses of "host:port", "unix:PATH", "unix-abstract:NAME" or a literal. NotFound: there is no such name, or
  // it has no address. Dropping the result forgets the question.
  using OnResolved = std::function<void(absl::StatusOr<std::vector<WorkerAddress>>)>;
  virtual std::shared_ptr<void> Resolve(const std::string& target, OnResolved on_resolved) = 0;

  // `tls` null: plaintext; `server_name` is what the certificate has to name. `events` outlives the stream.
  virtual std::unique_ptr<StreamSocket> Connect(const WorkerAddress& address, std::shared_ptr<const TlsContext> tls,
                                                const std::string& server_name, StreamSocketEvents& events) = 0;
};

}  // namespace sluice
