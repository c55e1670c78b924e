#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/link/scheduled_tunnel.h"
#include "lib/net/executor.h"
#include "lib/net/happy_eyeballs_socket.h"

namespace sluice {

class LinkLoop;

// One TCP connection of this process to a server whose protocol is unknown. Its bytes take turns in the schedule of the
// link (ScheduledTunnel), if the policy has turns. There is one for each open LinkStream. Used on the link's thread
// only.
class ScheduledConnection final : private StreamSocketEvents {
 public:
  // The user of the connection. No function is called after OnOver, and none may destroy the connection.
  class User {
   public:
    virtual ~User() = default;

    virtual void OnOpen() = 0;
    // Returns whether the user takes more bytes. If it does not, it calls Resume later.
    virtual bool OnBytes(absl::string_view bytes) = 0;
    // The kernel has accepted all bytes of Write. It may be called within Write.
    virtual void OnWritten() = 0;
    virtual void OnEnded() = 0;  // the server sends no more, and may still receive
    // The connection has ended, or could not be made. `why` is OK if the server closed it, and NotFound after a failed
    // look-up. `error_number` is an errno, or 0.
    virtual void OnOver(const absl::Status& why, int error_number) = 0;
  };

  // `loop` and `user` must outlive it. It is destroyed at the end of a turn of the loop, after Stop.
  ScheduledConnection(LinkLoop& loop, size_t traffic_class, User& user);
  ~ScheduledConnection() override;
  ScheduledConnection(const ScheduledConnection&) = delete;
  ScheduledConnection& operator=(const ScheduledConnection&) = delete;

  // Looks up "host:port" and connects, once.
  void Connect(const std::string& target);
  // Sends bytes in the next turn, after OnOpen. OnWritten must come before the next Write.
  void Write(std::string bytes);
  void EndWrites();  // after the bytes of Write; the server's bytes still come
  void Resume();
  void Stop();  // calls the user no more, and frees its part of the budget

 private:
  void OnConnected() override;
  void OnBytes(absl::string_view bytes) override;
  void OnDrained() override;
  void OnEnded() override;
  void OnDisconnected(absl::Status why) override;

  void OnAddresses(absl::StatusOr<std::vector<WorkerAddress>> addresses);
  // Whether its bytes take turns now.
  bool takes_turns() const { return turns_ != nullptr && !ended_; }
  void Pass();
  void SetReading();
  void End(const absl::Status& why, int error_number);

  LinkLoop& loop_;
  User& user_;
  bool open_ = false;
  bool over_ = false;
  bool ended_ = false;   // the server sends no more
  bool stuck_ = false;   // the user takes no bytes
  bool written_ = true;  // OnWritten has come after the last Write
  bool ends_writes_ = false;
  std::string waiting_;                     // bytes of Write that wait for a turn
  std::unique_ptr<ScheduledTunnel> turns_;  // null: the policy has no turns
  std::shared_ptr<void> look_up_;
  std::unique_ptr<HappyEyeballsSocket> socket_;  // null before the look-up
};

}  // namespace sluice
