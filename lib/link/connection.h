#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/http2/session.h"
#include "lib/link/executor.h"

namespace sluice {

class Connection;

// What becomes of a connection; for its owner, which may not destroy it from within a call (see LinkCore::Bury).
class ConnectionEvents {
 public:
  virtual ~ConnectionEvents() = default;

  // The other side speaks HTTP/2: requests may be sent.
  virtual void OnUp(Connection& connection) = 0;
  // Its session has more streams free than before, or goes away.
  virtual void OnSlots(Connection& connection) = 0;
  // It is over, or never came to be; every stream has been told. Last of all.
  virtual void OnDown(Connection& connection, absl::Status why) = 0;
};

// Writes of all connections leave once a turn of the link's thread.
class FlushQueue {
 public:
  virtual ~FlushQueue() = default;
  virtual void FlushLater(Connection& connection) = 0;
  virtual void Forget(Connection& connection) = 0;  // which is queued, and about to go
};

// One byte stream to a worker and the HTTP/2 session on it, the client's side. At most one of a Worker takes new calls;
// others that go away finish theirs. For the link's thread only.
class Connection final : public StreamSocketEvents, public SessionEvents {
 public:
  struct Options {
    WorkerAddress address;
    std::shared_ptr<TlsContext> tls;  // null: plaintext
    std::string server_name;
    uint32_t stream_window_bytes = 6;
  };
  // Begins to connect. `executor`, `flushes` and `events` outlive it.
  Connection(Executor& executor, FlushQueue& flushes, const Options& options, ConnectionEvents& events);
  ~Connection() override;

  bool up() const { return up_; }
  // Null before the byte stream is connected and after it is over. Whoever makes it write calls FlushLater.
  Http2Session* session() { return session_.get(); }
  void FlushLater();
  void Flush();  // by the FlushQueue
  // Tells the worker that no more requests come, and the streams that there are that it is over; no event follows.
  void Close();

  std::optional<TcpSocket> Tcp() const;

 private:
  void OnConnected() override;
  void OnBytes(absl::string_view bytes) override;
  void OnDisconnected(absl::Status why) override;
  StreamEvents* OnStream(int32_t stream) override;
  void OnSlots() override;
  void End(absl::Status why);

  FlushQueue& flushes_;
  const Options options_;
  ConnectionEvents& events_;
  bool up_ = false;
  bool over_ = false;
  bool flush_queued_ = false;
  std::unique_ptr<Http2Session> session_;
  std::string output_;
  std::unique_ptr<StreamSocket> socket_;  // the last: it calls what is above
};

}  // namespace sluice
