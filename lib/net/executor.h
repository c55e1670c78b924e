#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/time_point.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/tcp/tcp_socket.h"

namespace sluice {

class TlsContext;

// The events of one byte stream. Called on the link's thread, and never within a call of the stream's own methods.
class StreamSocketEvents {
 public:
  virtual ~StreamSocketEvents() = default;

  // TCP is connected, and TLS waits for StartTls: see ConnectOptions::tls_later.
  virtual void OnTcpConnected() {}
  virtual void OnConnected() = 0;
  virtual void OnBytes(absl::string_view bytes) = 0;
  // The kernel has accepted all bytes of Write that it did not accept at once.
  virtual void OnDrained() {}
  // The peer sends no more, and may still receive. Only streams that may be half open report it.
  virtual void OnEnded() {}
  // The stream has ended, or could not be made. `why` is OK if the peer closed it properly. No event follows.
  virtual void OnDisconnected(absl::Status why) = 0;
};

// One byte stream to a worker or from a client, over TCP or a Unix socket, with or without TLS. Dropping it closes it
// and stops its events. Used on the link's thread only.
class StreamSocket {
 public:
  static constexpr size_t kMaxBacklogBytes = 256u << 10;

  virtual ~StreamSocket() = default;

  // Begins the TLS handshake, once, after OnTcpConnected.
  virtual void StartTls() {}
  // Sends bytes, after OnConnected. Bytes that the kernel does not accept now are kept and sent later.
  virtual void Write(std::string bytes) = 0;
  // Bytes of Write that the kernel has not accepted yet.
  virtual size_t unsent_bytes() const = 0;
  // True if the backlog is too large; the writer waits for OnDrained.
  bool congested() const { return unsent_bytes() > kMaxBacklogBytes; }
  // Sends the end of this direction after all bytes of Write, so that the peer may still send. Write nothing after it.
  virtual void EndWrites() {}
  // Closes the stream so that the peer sees an error and no proper end. Bytes that wait are lost. No event follows.
  virtual void Reset() {}
  // Stops or resumes OnBytes. Bytes that arrive while it is stopped stay in the kernel, whose window then stops the
  // peer.
  virtual void SetReading(bool reading) = 0;
  // Changes the receive window of an open TCP connection, for bytes that are read from now on. Bytes that were
  // advertised cannot be taken back. They must have come or have been read before the window is made smaller: otherwise
  // the kernel drops them. Does nothing to other streams.
  virtual void SetReceiveWindow(int /*bytes*/) {}
  // Describes an open TCP connection; nothing for other streams.
  virtual std::optional<TcpSocket> Tcp() const = 0;
  // The errno of the system call that ended the stream, in OnDisconnected; 0 if it ended otherwise.
  virtual int error_number() const { return 0; }
  // Whether the peer's certificate has one of these names, as TlsFilter::PeerHasOneOf. False before OnConnected, and
  // without TLS.
  virtual bool PeerHasOneOf(absl::Span<const std::string> /*names*/) const { return false; }
  // The name in the peer's certificate, as TlsFilter::PeerName. Empty before OnConnected, and without TLS.
  virtual std::string PeerName() const { return ""; }
  // Calls `on_revoked` with the reason, later, if a revocation list that was loaded after the handshake, and after the
  // last call, names a certificate of the peer. The stream goes on until its owner ends it.
  virtual void CheckPeer(std::function<void(const absl::Status& why)> /*on_revoked*/) {}
};

// One address of a worker, printable: "10.0.0.1:7000", "[::1]:7000", "unix:/path".
struct WorkerAddress {
  std::string text;
  friend bool operator==(const WorkerAddress&, const WorkerAddress&) = default;
};

// The environment of the link's thread: time, timers, names and byte streams. There are two implementations:
// AsioExecutor, and one in virtual time for tests. There is one executor for each link. All functions except Post are
// for the link's thread. All callbacks run on that thread, and never within the call that requests them.
class Executor {
 public:
  virtual ~Executor() = default;

  virtual TimePoint Now() const = 0;
  // Runs `task` on the link's thread, after the tasks that were posted before. Thread-safe.
  virtual void Post(std::function<void()> task) = 0;
  // Sets a task that runs once per turn of the loop, when everything that was ready in it has been handled. Writes
  // belong there, so that one turn costs a connection one write. Set once.
  virtual void SetEndOfTurn(std::function<void()> task) = 0;
  // Runs `task` at or after `time`, instead of the previous task. TimePoint::max() means never.
  virtual void SetTimer(TimePoint time, std::function<void()> task) = 0;
  // A uniform number from 0 to 1, for the jitter of back-off.
  virtual double Random() = 0;

  // Looks up all addresses of "host:port", "unix:PATH", "unix-abstract:NAME" or a literal. The result is NotFound if
  // there is no such name, or if it has no address. Dropping the returned pointer cancels the look-up.
  using OnResolved = std::function<void(absl::StatusOr<std::vector<WorkerAddress>>)>;
  virtual std::shared_ptr<void> Resolve(const std::string& target, OnResolved on_resolved) = 0;

  struct ConnectOptions {
    std::shared_ptr<const TlsContext> tls = nullptr;  // null: plaintext
    std::string server_name = {};                     // the name that the certificate must have
    bool tls_later = false;  // with `tls`: OnTcpConnected comes first, and StartTls begins the handshake
    // Buffer for received bytes that were not read (SO_RCVBUF of socket(7), before the kernel doubles it): about the
    // TCP window. It is set before the connect, which fixes the scale of the window. 0: the kernel chooses, and grows
    // it as the peer sends. Unix sockets ignore it.
    int receive_buffer_bytes = 0;
    // Whether a connected peer may stop reading for any time. Otherwise the connection of such a peer ends within 10 s.
    bool may_stall = false;
    // Whether the end of the peer's direction is OnEnded. Otherwise it is the end of the stream, OnDisconnected.
    bool half_open = false;
  };
  // Connects. `events` must outlive the stream.
  virtual std::unique_ptr<StreamSocket> Connect(const WorkerAddress& address, const ConnectOptions& options,
                                                StreamSocketEvents& events) = 0;
};

}  // namespace sluice
