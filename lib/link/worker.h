#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "absl/status/status.h"
#include "lib/link/connection.h"
#include "lib/link/reset_allowance.h"
#include "lib/link/scheduled.h"
#include "lib/link/scheduled_stream.h"
#include "lib/link/worker_table.h"
#include "lib/net/executor.h"
#include "lib/net/timer_queue.h"
#include "lib/tls/tls_context.h"

namespace sluice {

class LinkLoop;

// Waits until a worker is connected. Linked while it waits.
class ConnectedWaiter
    : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  virtual void OnConnected() = 0;  // within an event of the connection

 protected:
  ~ConnectedWaiter() = default;
};

// One worker of the link: its addresses, its connection, and the calls that wait for the connection. From its first use
// on the worker stays connected. It reconnects at once after a loss, and after a failure with a back-off that grows
// from 0.2 s to 5 s. It tries all addresses of its name in turn, and looks the name up again after each failure. There
// is one for each target and TLS options of a link, shared by all its callers. Used on the link's thread only.
//
// Calls wait while a connection is made for the first time, or again after a loss. After a failed attempt, until one
// succeeds, calls end at once with Unavailable and the reason, instead of late.
class Worker final : public ConnectionEvents, private Scheduled {
 public:
  // For WorkerPool::Find. The loop must outlive the worker.
  Worker(LinkLoop& loop, std::string target, std::shared_ptr<TlsContext> tls, std::string server_name = "");
  ~Worker() override;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const std::string& target() const { return target_; }
  const std::shared_ptr<TlsContext>& tls() const { return tls_; }
  std::string authority() const;
  size_t row() const { return row_; }                                     // in the link's WorkerTable
  uint32_t schedule_id() const { return WorkerTable::ScheduleId(row_); }  // in the link's LinkSchedule

  void Connect();  // does nothing if the worker is connected or tries to be
  void Close();    // permanently: all waiting and sent calls end
  bool connected() const { return connection_ != nullptr && connection_->up(); }
  // Calls the waiter once, when the worker is connected. The worker must not be connected yet.
  void AwaitConnected(ConnectedWaiter& waiter) { awaiting_.push_back(waiter); }
  // Why the last attempt to connect failed; OK if it did not.
  const absl::Status& failure() const { return failure_; }
  // The connection that a call can be sent on now; null if there is none.
  Connection* Sendable() const;

  // Lets the call wait until it can be sent. The worker then calls Resume, or ends the call if it cannot connect. Ends
  // it at once with ResourceExhausted if too many wait already: see CheckRoom.
  void Wait(ScheduledStream& call);
  // A call that did not wait here has ended without a stream. A call that waits may have the stream, and no other event
  // may follow.
  void OnStreamUnused();

  // Returns whether one more stream may be reset now: servers end the connection of a client that resets too often.
  // Calls that wait for that come first.
  bool TakeReset(TimePoint now) { return resetting_.empty() && resets_.Take(now); }
  // Counts a reset that the session sent by itself.
  void CountReset(TimePoint now) { resets_.Count(now); }
  // Calls ResetNow of the call as soon as its stream may be reset, unless it ends before.
  void WaitForReset(ScheduledStream& call);

  // A response of the worker had this value of kTcpReportKey in its trailers.
  void OnTcpReport(std::string_view report);
  // Appends the open connections.
  void AppendTcp(std::vector<WorkerTable::Socket>& sockets) const;

 private:
  // ConnectionEvents.
  void OnTcpConnected(Connection& connection) override;
  void OnUp(Connection& connection) override;
  void OnSlots(Connection& connection) override;
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
  void StartTls();
  void EndHandshake(CallEnd end);
  void OnAttemptFailed(const absl::Status& why);
  void BackOff(const absl::Status& why);
  void LookUpLater();
  void OnLost();
  void Leave(Connection& connection);
  absl::Status CheckRoom() const;
  void ResumeWaiting();
  void EndWaiting(const absl::Status& why);
  void ResetWaiting();
  std::string ServerName() const;

  LinkLoop& loop_;
  const std::string target_;
  const std::shared_ptr<TlsContext> tls_;
  const std::string server_name_;  // empty: see WorkerPool::Find
  const size_t row_;

  bool trying_ = false;  // a look-up, a handshake or a back-off is under way
  std::shared_ptr<void> look_up_;
  std::vector<WorkerAddress> addresses_;
  size_t next_address_ = 0;
  bool waits_for_room_ = false;
  BlockId room_ = 0;
  bool handshake_out_ = false;
  TimerQueue::Id timer_;  // for the back-off, or for the attempt
  std::chrono::nanoseconds back_off_;
  TimePoint up_since_;
  absl::Status failure_;

  std::unique_ptr<Connection> connection_;            // open or connecting; may be null
  std::vector<std::unique_ptr<Connection>> leaving_;  // after a GOAWAY, until their last stream has ended
  using WaitingCalls = boost::intrusive::list<ScheduledStream, boost::intrusive::base_hook<WaitLink>,
                                              boost::intrusive::constant_time_size<false>>;
  boost::intrusive::list<ConnectedWaiter, boost::intrusive::constant_time_size<false>> awaiting_;
  WaitingCalls waiting_;  // calls to be sent
  size_t waiting_calls_ = 0;
  WaitingCalls resetting_;  // abandoned calls that are still on the wire
  ResetAllowance resets_;
  TimerQueue::Id reset_timer_;  // for the first of resetting_
};

}  // namespace sluice
