#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lib/link/connection.h"
#include "lib/link/worker_table.h"
#include "lib/net/timer_queue.h"

namespace sluice {

class LinkLoop;

// The connections to one worker that are up: those that take new calls, and those that only finish their calls. Reports
// to the WorkerTable how many take calls. Extra connections end after a minute without a call. There is one for each
// Worker, used on the link's thread only.
class ConnectionPool {
 public:
  ConnectionPool(LinkLoop& loop, size_t row) : loop_(loop), row_(row) {}  // the loop must outlive the pool
  ConnectionPool(const ConnectionPool&) = delete;
  ConnectionPool& operator=(const ConnectionPool&) = delete;

  // The connections that take new calls.
  size_t size() const { return open_.size(); }
  bool empty() const { return open_.empty(); }
  bool full() const;  // their number has reached WorkerPool::max_connections
  size_t open_slots() const;
  // Returns a connection with a free stream. Prefers one that suits the client; null if there is none, or, if
  // `must_suit`, none that suits.
  Connection* Find(uint64_t client, bool must_suit) const;

  void Add(std::unique_ptr<Connection> connection);
  // Whether the connection is to be left: its session goes away, or it was left before.
  bool Leaves(Connection& connection) const;
  // From now on the connection takes no new calls. It ends with its last call, not counting those that wait for their
  // reset. Returns whether it took calls before. Call it again for each call that has ended.
  bool Leave(Connection& connection);
  // The connection is over. Returns whether it took calls.
  bool Remove(Connection& connection);
  // Leaves each connection most of whose calls wait for their reset, such as after the end of a client, if there is
  // another: its end resets all of them at once. Returns whether another is wanted.
  bool LeaveUnwanted();
  void Close();  // permanently: all calls end. Call it before the pool is destroyed

  void CheckPeers();  // Connection::CheckPeer of each

  // Appends those that take calls.
  void AppendTcp(std::vector<WorkerTable::Socket>& sockets) const;

 private:
  using Connections = std::vector<std::unique_ptr<Connection>>;

  std::unique_ptr<Connection> TakeOpen(Connection& connection);
  void EndOrKeep(std::unique_ptr<Connection> connection);
  void LookForIdle();

  LinkLoop& loop_;
  const size_t row_;
  Connections open_;
  Connections leaving_;
  TimerQueue::Id idle_look_;  // set while there are extra connections
};

}  // namespace sluice
