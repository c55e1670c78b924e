#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/net/executor.h"
#include "lib/net/happy_eyeballs_socket.h"
#include "lib/proxy/unsent_watch.h"

namespace sluice {

class LinkLoop;

// The far side of a tunnel that only forwards bytes. Each direction ends by itself. There is one for each such tunnel,
// and for each CONNECT until it is known whether its tunnel is such a tunnel. Used on the link's thread only.
class Tunnel final : private StreamSocketEvents {
 public:
  // Callbacks to the near side. Connect, LookUp, SetOwner and SetReading do not call them. None is called after
  // on_over. They must not destroy the tunnel.
  struct Owner {
    std::function<void()> on_open;
    std::function<void(absl::string_view bytes)> on_bytes;  // null: the tunnel keeps them for TakeReceived
    // True: more than StreamSocket::kMaxBacklogBytes wait for the far side. False: no bytes wait now.
    std::function<void(bool backlog)> on_backlog;
    std::function<void()> on_ended;  // the far side sends no more, and may still receive
    // If it was not opened, `why` is NotFound after a failed look-up, DeadlineExceeded, Unavailable, or an error of the
    // check.
    std::function<void(const absl::Status& why, bool opened)> on_over;
  };
  using Check = std::function<absl::Status(const WorkerAddress&)>;

  // `receive_buffer_bytes` is as in Executor::ConnectOptions. `link` must outlive the tunnel.
  Tunnel(LinkLoop& link, int receive_buffer_bytes, Owner owner);
  ~Tunnel() override;
  Tunnel(const Tunnel&) = delete;
  Tunnel& operator=(const Tunnel&) = delete;

  // Connects to the first of these addresses that accepts the connection. There is at least one.
  void Connect(std::vector<WorkerAddress> addresses);
  // Looks up `target`, and connects to its addresses that pass `check`.
  void LookUp(const std::string& target, Check check);

  bool open() const { return open_; }
  const WorkerAddress& address() const { return socket_->address(); }  // of the far side, once it is open
  // The near side changes. Not within a callback.
  void SetOwner(Owner owner) { owner_ = std::move(owner); }
  void Write(std::string bytes);  // keeps bytes that are written before on_open
  void EndWrites();               // as StreamSocket::EndWrites
  void Reset() {                  // as StreamSocket::Reset
    if (open_) socket_->Reset();
  }
  bool ended() const { return ended_; }  // the far side sends no more
  void SetReading(bool reading);
  void SetReceiveWindow(int bytes) {  // as StreamSocket::SetReceiveWindow
    if (open_) socket_->SetReceiveWindow(bytes);
  }
  // Describes the connection once it is open; nothing if it is not TCP.
  std::optional<TcpSocket> Tcp() const { return open_ ? socket_->Tcp() : std::nullopt; }
  // Bytes that the far side has not read.
  size_t unsent_bytes() const { return open_ ? socket_->unsent_bytes() : early_.size(); }
  std::string TakeEarly() { return std::exchange(early_, {}); }  // bytes written before on_open
  // Bytes that came before SetReading(false) took effect: the socket may have a thread of its own.
  std::string TakeReceived() { return std::exchange(received_, {}); }
  // Since when the far side has read none of them, as of `now`.
  TimePoint UnsentSince(TimePoint now);

 private:
  void OnConnected() override;
  void OnBytes(absl::string_view bytes) override;
  void OnDrained() override { owner_.on_backlog(false); }
  void OnEnded() override;
  void OnDisconnected(absl::Status why) override;

  void OnAddresses(absl::StatusOr<std::vector<WorkerAddress>> addresses, const Check& check);

  LinkLoop& link_;
  const int receive_buffer_bytes_;
  Owner owner_;
  std::shared_ptr<void> look_up_;
  bool open_ = false;
  bool ended_ = false;       // the far side sends no more
  bool ends_early_ = false;  // EndWrites came before on_open
  std::string early_;
  std::string received_;
  UnsentWatch unsent_;
  std::unique_ptr<HappyEyeballsSocket> socket_;
};

}  // namespace sluice
