#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "absl/status/status.h"
#include "lib/link/connection.h"
#include "lib/link/executor.h"
#include "lib/link/reset_allowance.h"
#include "lib/link/scheduled.h"
#include "lib/link/timer_queue.h"
#include "lib/link/tls_context.h"
#include "lib/link/wire_call.h"
#include "lib/telemetry/worker_table.h"

namespace sluice {

class LinkCore;

// One worker as the link knows it: how it is reached, its connection, and the calls that wait for that. From its first
// use on it is connected whenever it can be: after a loss at once, after a failure with a back-off that doubles, by
// all the addresses of its name in turn, which is looked up anew after each failure. One for each target and TLS
// options of a link, shared by all that call it; for the link's thread only.
//
// Calls wait while a connection is made for the first time, or again after a loss. While the last attempt has failed
// they end at once with Unavailable and its reason, and not late on one that is tried.
class Worker final : public ConnectionEvents, private Scheduled {
 public:
  // The core outlives it.
  Worker(LinkCore& core, std::string target, std::shared_ptr<TlsContext> tls);
  ~Worker() override;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const std::string& target() const { return target_; }
  const std::shared_ptr<TlsContext>& tls() const { return tls_; }
  std::string authority() const;
  size_t row() const { return row_; }  // of the link's WorkerTable

  void Connect();  // unless it is, or tries
  void Close();    // for good: all calls that wait or are out end
  bool connected() const { return connection_ != nullptr && connection_->up(); }
  // Not OK: it could not be reached the last time, and why.
  const absl::Status& failure() const { return failure_; }
  // Null: a call cannot be sent now.
  Connection* Sendable() const;

  // The call waits until it can be sent; it is told by Resume, or ended when the worker cannot be reached.
  void Wait(WireCall& call);

  // One more stream may be reset now: servers end the connection of a client that resets too often. Those that wait for
  // that come first.
  bool TakeReset(TimePoint now) { return resetting_.empty() && resets_.Take(now); }
  // The call is told by ResetNow as soon as its stream may be reset, unless it ends before.
  void WaitForReset(WireCall& call);

  // The connections that stand.
  void AppendTcp(std::vector<WorkerTable::Socket>& sockets) const;

 private:
  // ConnectionEvents.
  void OnUp(Connection& connection) override;
  void OnSlots(Connection& connection) override;
  void OnDown(Connection& connection, absl::Status why) override;
  // Scheduled: the handshake of the next connection.
  void Send(CallId id, int64_t granted_bytes) override;
  void Grant(int64_t) override {}
  void EndUnsent(absl::Status why) override;
  void Abort() override {}

  void LookUp();
  void AskForRoom();
  void EndHandshake(CallEnd end);
  void OnAttemptFailed(const absl::Status& why);
  void BackOff(const absl::Status& why);
  void LookUpLater();
  void OnLost();
  void Leave(Connection& connection);
  void ResumeWaiting();
  void EndWaiting(const absl::Status& why);
  void ResetWaiting();
  std::string ServerName() const;

  LinkCore& core_;
  const std::string target_;
  const std::shared_ptr<TlsContext> tls_;
  const size_t row_;

  bool trying_ = false;  // a look-up, a handshake, or a back-off is under way
  std::shared_ptr<void> look_up_;
  std::vector<WorkerAddress> addresses_;
  size_t next_address_ = 0;
  bool waits_for_room_ = false;
  BlockId room_ = 0;
  CallId handshake_;
  bool handshake_out_ = false;
  TimerQueue::Id timer_;  // of the back-off, or of the attempt
  std::chrono::nanoseconds back_off_;
  TimePoint up_since_;
  absl::Status failure_;

  std::unique_ptr<Connection> connection_;            // null: there is none, nor is one tried
  std::vector<std::unique_ptr<Connection>> leaving_;  // after a GOAWAY, until their last stream has ended
  using WaitingCalls = boost::intrusive::list<WireCall, boost::intrusive::base_hook<WaitHook>,
                                              boost::intrusive::constant_time_size<false>>;
  WaitingCalls waiting_;    // to be sent
  WaitingCalls resetting_;  // on the wire, and nobody needs them
  ResetAllowance resets_;
  TimerQueue::Id reset_timer_;  // of the first of those
};

}  // namespace sluice
