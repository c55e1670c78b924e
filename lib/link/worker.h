#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "absl/status/status.h"
#include "lib/link/connection.h"
#include "lib/link/connection_pool.h"
#include "lib/link/connector.h"
#include "lib/link/reset_queue.h"
#include "lib/link/scheduled_stream.h"
#include "lib/link/worker_table.h"
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

// One worker of the link: its connections, and the calls that wait for a connection. From its first use on the worker
// stays connected. It reconnects at once after a loss, and after a failure with the back-off of its Connector. There is
// one for each target and TLS options of a link, shared by all its callers. Used on the link's thread only.
//
// One connection is enough for most workers. Up to WorkerPool::max_connections are made, one after the other, while
// calls wait because all streams are in use (MAX_CONCURRENT_STREAMS), or because no connection suits their client (see
// Connection::Suits). An extra connection ends once it has been idle for a minute.
//
// Calls wait while a connection is made for the first time, or again after a loss. After a failed attempt, until one
// succeeds, calls end at once with Unavailable and the reason, instead of late. If the worker has another connection,
// they take any free stream instead.
class Worker final : private ConnectorEvents {
 public:
  // One worker may have this many calls even if no place is free, because all workers of a link may connect at the same
  // time.
  static constexpr int64_t kMinCalls = 64;
  // Returns the bound of the calls of one worker where `all_calls` of at most `limit` exist: the number of free places,
  // and at least kMinCalls. One hung worker thus leaves half of the places, and n of them leave 1/(n + 1).
  static int64_t CallBound(int64_t limit, int64_t all_calls);

  // For WorkerPool::Find. The loop must outlive the worker.
  Worker(LinkLoop& loop, std::string target, std::shared_ptr<TlsContext> tls, std::string server_name = "");
  ~Worker() override;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const std::string& target() const { return connector_.target(); }
  const std::shared_ptr<TlsContext>& tls() const { return connector_.tls(); }
  std::string authority() const;
  size_t row() const { return row_; }                                     // in the link's WorkerTable
  uint32_t schedule_id() const { return WorkerTable::ScheduleId(row_); }  // in the link's LinkSchedule

  void Connect();  // does nothing if the worker is connected or tries to be
  // Ends the back-off after a failure. Its address is known to accept connections.
  void ConnectNow() { connector_.ConnectNow(); }
  void Close();  // permanently: all waiting and sent calls end
  bool connected() const { return !connections_.empty(); }
  // Calls the waiter once, when the worker is connected. The worker must not be connected yet.
  void AwaitConnected(ConnectedWaiter& waiter) { awaiting_.push_back(waiter); }
  // Why the last attempt to connect failed; OK if it did not, or if the worker is connected.
  absl::Status failure() const { return connected() ? absl::OkStatus() : connector_.failure(); }
  // The connection that a call for this client can be sent on now; null if the call must wait.
  Connection* Sendable(uint64_t client) const;

  // Lets the call wait until it can be sent. The worker then resumes it, or ends it if it cannot connect. Ends it at
  // once if CheckRoom returns an error.
  void Wait(ScheduledStream& call);
  // Returns ResourceExhausted if so many calls, or bytes of their requests, wait because of this worker that this one
  // may not. Waiting calls are parked, or held because the worker is slow.
  absl::Status CheckRoom(const ScheduledStream& call) const;
  // A call that did not wait here has ended without a stream. A call that waits may have the stream, and no other event
  // may follow.
  void OnStreamUnused();
  ResetQueue& resets() { return resets_; }
  // The number of calls that wait for a stream, though the worker is connected.
  size_t waiting_for_stream() const { return connected() ? waiting_calls_ : 0; }

  // A response of the worker had this value of kTcpReportKey in its trailers.
  void OnTcpReport(std::string_view report);
  ConnectionPool& connections() { return connections_; }

 private:
  // ConnectorEvents.
  void OnConnected(std::unique_ptr<Connection> connection) override;
  void OnConnectFailed() override;
  void OnUp(Connection& connection) override;
  void OnSlots(Connection& connection) override;
  void OnDown(Connection& connection, absl::Status why) override;
  bool WantsConnection() const override;

  bool MayConnect() const { return !connections_.full() && connector_.failure().ok(); }
  void Reconnect();
  void OnResetsLate();
  void WaitApart(ScheduledStream& call);
  void JoinWaiting();
  void ResumeWaiting();
  void EndWaiting(const absl::Status& why);

  LinkLoop& loop_;
  Connector connector_;
  const size_t row_;

  ConnectionPool connections_;
  bool relieves_ = false;  // a connection is wanted so that another can leave
  boost::intrusive::list<ConnectedWaiter, boost::intrusive::constant_time_size<false>> awaiting_;
  WaitingStreams waiting_;  // calls to be sent
  // Calls that no connection suits, until the Connector has made the next one, or has failed.
  WaitingStreams waiting_apart_;
  size_t waiting_calls_ = 0;  // the calls in both lists
  ResetQueue resets_;
};

}  // namespace sluice
