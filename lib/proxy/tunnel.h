#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/net/executor.h"
#include "lib/proxy/unsent_watch.h"

namespace sluice {

// The far side of a tunnel that only forwards bytes. When it ends, both directions end. There is one for each such
// tunnel. Used on the link's thread only.
class Tunnel final : private StreamSocketEvents {
 public:
  // Callbacks to the near side. The constructor and SetReading do not call them. None is called after on_over.
  struct Owner {
    std::function<void()> on_open;
    std::function<void(absl::string_view bytes)> on_bytes;
    // True: more than StreamSocket::kMaxBacklogBytes wait for the far side. False: no bytes wait now.
    std::function<void(bool backlog)> on_backlog;
    std::function<void(const absl::Status& why, bool opened)> on_over;
  };
  using Check = std::function<absl::Status(const WorkerAddress&)>;

  // Connects to the first address of `target` that passes `check` and accepts the connection. `receive_buffer_bytes` is
  // as in Executor::ConnectOptions. `executor` must outlive the tunnel.
  Tunnel(Executor& executor, const std::string& target, int receive_buffer_bytes, Check check, Owner owner);
  ~Tunnel() override;
  Tunnel(const Tunnel&) = delete;
  Tunnel& operator=(const Tunnel&) = delete;

  void Write(std::string bytes);  // keeps bytes that are written before on_open
  void SetReading(bool reading);
  // Bytes that the far side has not read.
  size_t unsent_bytes() const { return open_ ? socket_->unsent_bytes() : early_.size(); }
  std::string TakeEarly() { return std::exchange(early_, {}); }  // bytes written before on_open
  // Since when the far side has read none of them, as of `now`.
  TimePoint UnsentSince(TimePoint now);

 private:
  void OnConnected() override;
  void OnBytes(absl::string_view bytes) override { owner_.on_bytes(bytes); }
  void OnDrained() override { owner_.on_backlog(false); }
  void OnDisconnected(absl::Status why) override;

  void TryNext(absl::Status why);

  Executor& executor_;
  const int receive_buffer_bytes_;
  const Check check_;
  const Owner owner_;
  std::shared_ptr<void> look_up_;
  std::vector<WorkerAddress> addresses_;
  size_t next_ = 0;
  bool open_ = false;
  std::string early_;
  UnsentWatch unsent_;
  std::unique_ptr<StreamSocket> socket_;
  std::unique_ptr<StreamSocket> failed_;  // its event is still on the stack
};

}  // namespace sluice
