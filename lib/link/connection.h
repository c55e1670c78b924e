#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/http2/session.h"
#include "lib/link/flush_queue.h"
#include "lib/link/scheduled_stream.h"
#include "lib/link/silence_watch.h"
#include "lib/net/executor.h"
#include "lib/net/happy_eyeballs_socket.h"
#include "lib/net/timer_queue.h"

namespace sluice {

class Connection;

// The events of a connection, for its owner. The owner must not destroy it within an event (see LinkLoop::Bury).
class ConnectionEvents {
 public:
  virtual ~ConnectionEvents() = default;

  // TCP is connected, and TLS waits for StartTls. Only with TLS.
  virtual void OnTcpConnected(Connection& /*connection*/) {}
  // HTTP/2 has begun, so requests may be sent.
  virtual void OnUp(Connection& connection) = 0;
  // The session has more free streams than before, or it goes away.
  virtual void OnSlots(Connection& connection) = 0;
  // The connection is over, or could not be made. Every stream has received its end. No event follows.
  virtual void OnDown(Connection& connection, absl::Status why) = 0;
};

// One byte stream to a worker, with the client's side of an HTTP/2 session on it, and the number of open streams of
// each client. There are a few for each Worker. Used on the link's thread only.
class Connection final : public Flushable, public StreamSocketEvents, public SessionEvents {
 public:
  struct Options {
    std::vector<WorkerAddress> addresses;  // at least one
    std::shared_ptr<TlsContext> tls;       // null: plaintext
    std::string server_name;
    Http2Session::Options session;
  };
  // Begins to connect to the first of the addresses that accepts the connection. `executor`, `timers`, `flushes` and
  // `events` must outlive the connection.
  Connection(Executor& executor, TimerQueue& timers, FlushQueue& flushes, const Options& options,
             ConnectionEvents& events);
  ~Connection() override;

  // Its owner changes. `events` must outlive the connection.
  void SetEvents(ConnectionEvents& events) { events_ = &events; }
  // The address that has accepted the connection; null: none has yet.
  const WorkerAddress* address() const { return socket_->connected() ? &socket_->address() : nullptr; }
  // Null before the byte stream is connected and after it is over. Call FlushLater after anything that makes it write.
  Http2Session* session() { return session_.get(); }
  void StartTls() { socket_->StartTls(); }  // after OnTcpConnected
  void FlushLater();
  void Flush() override;
  // Tells the worker that no more requests come, and the open streams that the connection is over. No event follows.
  void Close();

  // The worker's socket accepts no more bytes for now, though its HTTP/2 window may be open.
  bool congested() const { return socket_->congested(); }
  // Calls OnWritable of the stream when all bytes have left.
  void WaitUntilDrained(ScheduledStream& call) { undrained_.push_back(call); }

  std::optional<TcpSocket> Tcp() const;
  // Ends the connection, later, if a new revocation list names a certificate of the worker; see StreamSocket.
  void CheckPeer();

  // A stream of this client opens, or has closed. See ScheduledStream::Options.
  void OnStreamOpens(uint64_t client);
  void OnStreamClosed(uint64_t client);
  // A response on this connection is held, or no longer. See LookAtHeld.
  void OnResponseHeld(bool held);
  // A client with more streams than this has a connection for itself, if its Worker may have one more. These few can be
  // reset at once; if the client goes away with more, the connection ends with them; see Worker::OnResetsLate.
  static constexpr size_t kSharedStreams = 15;
  bool Suits(uint64_t client) const;  // for one more stream of this client

  TimePoint up_since() const { return up_since_; }
  TimePoint idle_since() const { return clients_.empty() ? idle_since_ : TimePoint::max(); }
  // The number of open streams that wait for their reset.
  size_t unwanted() const { return unwanted_; }
  size_t& unwanted_counter() { return unwanted_; }

 private:
  void OnTcpConnected() override;
  void OnConnected() override;
  void OnBytes(absl::string_view bytes) override;
  void OnDrained() override;
  void OnDisconnected(absl::Status why) override;
  StreamEvents* OnStream(int32_t stream) override;
  void OnSlots() override;
  void End(absl::Status why);

  // Looks every SilenceWatch::kLookEvery while streams are open.
  void WatchForSilence();
  void LookForSilence();
  // Lets the worker send a frame if it has sent nothing for kSettingsEvery while responses are held.
  void LookAtHeld();
  SilenceWatch::Received received() const { return {received_bytes_, session_->received_stream_frames()}; }

  Executor& executor_;
  TimerQueue& timers_;
  FlushQueue& flushes_;
  const Options options_;
  ConnectionEvents* events_;
  bool up_ = false;
  TimePoint up_since_;
  bool over_ = false;
  bool disconnected_ = false;
  bool flush_queued_ = false;
  std::unique_ptr<Http2Session> session_;
  absl::flat_hash_map<uint64_t, size_t> clients_;  // the number of their open streams, at least 1
  size_t large_clients_ = 0;                       // those with more than kSharedStreams
  TimePoint idle_since_;                           // if there are none
  size_t unwanted_ = 0;
  size_t held_ = 0;  // responses
  uint64_t received_bytes_ = 0;
  TimePoint received_at_;  // the last bytes
  SilenceWatch silence_;
  TimerQueue::Id look_;       // set while streams are open
  TimerQueue::Id held_look_;  // set while responses are held
  std::string output_;
  boost::intrusive::list<ScheduledStream, boost::intrusive::base_hook<DrainHook>,
                         boost::intrusive::constant_time_size<false>>
      undrained_;
  std::unique_ptr<HappyEyeballsSocket> socket_;  // last, since it calls into the members above
};

}  // namespace sluice
