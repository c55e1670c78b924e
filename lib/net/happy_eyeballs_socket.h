#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/net/executor.h"
#include "lib/net/happy_eyeballs.h"
#include "lib/net/timer_queue.h"

namespace sluice {

// A byte stream to the first of several addresses that accepts a connection, as HappyEyeballs decides. Its owner uses
// it as the socket of one address. There is one for each such stream. Used on the link's thread only.
class HappyEyeballsSocket final : public StreamSocket {
 public:
  // Begins to connect to `addresses`, at least one. If all attempts fail, OnDisconnected has their reasons. TLS begins
  // after the choice of an address: `options` have tls_later, or no TLS. `executor`, `timers` and `events` must outlive
  // the socket.
  HappyEyeballsSocket(Executor& executor, TimerQueue& timers, std::vector<WorkerAddress> addresses,
                      const Executor::ConnectOptions& options, StreamSocketEvents& events);
  ~HappyEyeballsSocket() override;
  HappyEyeballsSocket(const HappyEyeballsSocket&) = delete;
  HappyEyeballsSocket& operator=(const HappyEyeballsSocket&) = delete;

  bool connected() const { return winner_ != nullptr; }
  // The address that has accepted the connection, if it is connected. TLS may follow.
  const WorkerAddress& address() const;

  // StreamSocket, once it is connected.
  void StartTls() override;
  void Write(std::string bytes) override;
  size_t unsent_bytes() const override;
  void EndWrites() override;
  void Reset() override;
  void SetReading(bool reading) override;
  void SetReceiveWindow(int bytes) override;
  std::optional<TcpSocket> Tcp() const override;
  int error_number() const override;  // of the last attempt, if all have failed
  void CheckPeer(std::function<void(const absl::Status& why)> on_revoked) override;

 private:
  class Attempt;

  void Apply(const HappyEyeballs::Actions& actions);
  void Choose(Attempt& attempt);
  void OnAttemptFailed(const absl::Status& why);
  absl::Status Failure() const;

  Executor& executor_;
  TimerQueue& timers_;
  const std::vector<WorkerAddress> addresses_;
  const Executor::ConnectOptions options_;
  StreamSocketEvents& events_;
  HappyEyeballs decision_;
  TimerQueue::Id timer_;
  std::vector<std::unique_ptr<Attempt>> attempts_;  // failed ones, too: their event may still be on the stack
  Attempt* winner_ = nullptr;
  std::vector<absl::Status> failures_;
  int error_number_ = 0;  // of the last of them
};

}  // namespace sluice
