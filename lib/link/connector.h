#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/link/connection.h"
#include "lib/link/scheduled.h"
#include "lib/net/executor.h"
#include "lib/net/timer_queue.h"
#include "lib/tls/tls_context.h"

namespace sluice {

class LinkLoop;

// The owner of a Connector, and of the connections that it makes. It must not destroy the Connector within an event.
class ConnectorEvents : public ConnectionEvents {
 public:
  // Hands over a connection that is up. Its events follow, beginning with OnUp.
  virtual void OnConnected(std::unique_ptr<Connection> connection) = 0;
  // An attempt has failed on all addresses, with Connector::failure(). The next one follows after the back-off.
  virtual void OnConnectFailed() = 0;
  // Asked after the back-off: whether to try again.
  virtual bool WantsConnection() const = 0;
};

// Makes the connections to one worker, one at a time: the look-up of its name, room in the schedule for the handshake,
// the handshake, and the back-off after a failure. It tries the addresses of the name by RFC 8305. If an address
// accepts the connection and HTTP/2 or TLS fails, it tries the others. After the failure of all it looks the name up
// again. While the name server fails, the addresses of the last look-up stay in use. The back-off grows from 0.2 s
// to 5 s. There is one for each Worker, used on the link's thread only.
class Connector final : public ConnectionEvents, private Scheduled {
 public:
  // `server_name`: see WorkerPool::Find. The loop and `events` must outlive the connector.
  Connector(LinkLoop& loop, std::string target, std::shared_ptr<TlsContext> tls, std::string server_name,
            ConnectorEvents& events);
  ~Connector() override;
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  const std::string& target() const { return target_; }
  const std::shared_ptr<TlsContext>& tls() const { return tls_; }
  // Why the last attempt failed; OK if it did not.
  const absl::Status& failure() const { return failure_; }

  // These do nothing while it tries to connect.
  void Connect();
  void ConnectLater();                    // after the back-off
  void BackOff(const absl::Status& why);  // the same; `why` becomes the failure

  void ConnectNow();  // instead of waiting for the end of a back-off
  void Close();       // permanently

 private:
  // ConnectionEvents, until the connection is up.
  void OnTcpConnected(Connection& connection) override;
  void OnUp(Connection& connection) override;
  void OnSlots(Connection&) override {}
  void OnDown(Connection& connection, absl::Status why) override;
  // Scheduled: the handshake of the next connection.
  void Send(int64_t granted_bytes) override;
  void Grant(int64_t) override {}
  void EndUnsent(absl::Status why) override;
  void Abort() override {}

  void LookUp();
  void AskForRoom(int64_t bytes);
  void LeaveRoom();
  void WatchAttempt();
  void EndHandshake(CallEnd end);
  void OnAttemptFailed(const absl::Status& why);
  void Fail(const absl::Status& why);
  void Pause();
  std::string ServerName() const;

  LinkLoop& loop_;
  const std::string target_;
  const std::shared_ptr<TlsContext> tls_;
  const std::string server_name_;
  ConnectorEvents& events_;

  bool trying_ = false;  // a look-up, a handshake or a back-off is under way
  bool backs_off_ = false;
  std::shared_ptr<void> look_up_;
  std::vector<WorkerAddress> known_;      // the last look-up found them; none if the name does not exist any more
  absl::Status look_up_failure_;          // the attempt uses known_ because of it; OK: known_ is new
  std::vector<WorkerAddress> addresses_;  // except those whose HTTP/2 or TLS has failed
  bool tried_one_ = false;                // an address was tried since the look-up
  bool waits_for_room_ = false;
  BlockId room_ = 0;
  bool handshake_out_ = false;
  TimerQueue::Id timer_;  // for the back-off, or for the attempt
  std::chrono::nanoseconds back_off_;
  absl::Status failure_;
  std::unique_ptr<Connection> connection_;  // the attempt
};

}  // namespace sluice
