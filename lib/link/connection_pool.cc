#include "lib/link/connection_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "lib/link/link_loop.h"

namespace sluice {
namespace {

// A handshake costs more than an idle connection.
constexpr std::chrono::seconds kMaxIdle(60);
constexpr std::chrono::seconds kLookForIdleEvery(10);
// Not sooner: a new connection for every few resets would cost the worker more than the streams do.
constexpr std::chrono::seconds kMinServed(1);

std::unique_ptr<Connection> TakeFrom(std::vector<std::unique_ptr<Connection>>& connections, Connection& connection) {
  const auto found = std::find_if(connections.begin(), connections.end(),
                                  [&connection](const auto& other) { return other.get() == &connection; });
  if (found == connections.end()) return nullptr;
  std::unique_ptr<Connection> taken = std::move(*found);
  connections.erase(found);
  return taken;
}

}  // namespace

bool ConnectionPool::full() const {
  return open_.size() >= loop_.workers().max_connections();
}

size_t ConnectionPool::open_slots() const {
  size_t slots = 0;
  for (const auto& connection : open_) slots += connection->session()->open_slots();
  return slots;
}

// The first one, so that extra connections become idle.
Connection* ConnectionPool::Find(uint64_t client, bool must_suit) const {
  Connection* other = nullptr;
  for (const auto& connection : open_) {
    if (connection->session()->open_slots() == 0) continue;
    if (connection->Suits(client)) return connection.get();
    if (other == nullptr) other = connection.get();
  }
  return must_suit ? nullptr : other;
}

void ConnectionPool::Add(std::unique_ptr<Connection> connection) {
  open_.push_back(std::move(connection));
  if (open_.size() > 1 && idle_look_ == TimerQueue::Id()) {
    idle_look_ = loop_.timers().Set(loop_.now() + kLookForIdleEvery, [this] { LookForIdle(); });
  }
}

std::unique_ptr<Connection> ConnectionPool::TakeOpen(Connection& connection) {
  auto taken = TakeFrom(open_, connection);
  if (taken != nullptr) loop_.worker_table().OnLost(row_, loop_.now());
  return taken;
}

bool ConnectionPool::Leaves(Connection& connection) const {
  const auto is_it = [&connection](const auto& other) { return other.get() == &connection; };
  return connection.session()->going_away() || std::find_if(leaving_.begin(), leaving_.end(), is_it) != leaving_.end();
}

bool ConnectionPool::Leave(Connection& connection) {
  auto left = TakeOpen(connection);
  const bool was_open = left != nullptr;
  if (!was_open) left = TakeFrom(leaving_, connection);
  if (left != nullptr) EndOrKeep(std::move(left));
  return was_open;
}

void ConnectionPool::EndOrKeep(std::unique_ptr<Connection> connection) {
  if (connection->session()->streams() > connection->unwanted()) {
    leaving_.push_back(std::move(connection));
    return;
  }
  connection->Close();
  loop_.Bury(std::move(connection));
}

bool ConnectionPool::Remove(Connection& connection) {
  auto lost = TakeOpen(connection);
  const bool was_open = lost != nullptr;
  if (!was_open) lost = TakeFrom(leaving_, connection);
  loop_.Bury(std::move(lost));
  return was_open;
}

bool ConnectionPool::LeaveUnwanted() {
  const auto is_unwanted = [this](const auto& connection) {
    return 2 * connection->unwanted() > connection->session()->streams() &&
           loop_.now() - connection->up_since() >= kMinServed;
  };
  // The other calls of such connections may be long, so their number is bounded, too.
  while (leaving_.size() < loop_.workers().max_connections()) {
    const auto found = std::find_if(open_.begin(), open_.end(), is_unwanted);
    if (found == open_.end()) return false;
    if (open_.size() == 1) return true;
    Leave(**found);
  }
  return false;
}

void ConnectionPool::LookForIdle() {
  idle_look_ = {};
  const auto is_idle = [idle_since = loop_.now() - kMaxIdle](const auto& connection) {
    return connection->idle_since() <= idle_since;
  };
  while (open_.size() > 1) {
    const auto idle = std::find_if(open_.rbegin(), open_.rend(), is_idle);
    if (idle == open_.rend()) break;
    Leave(**idle);
  }
  if (open_.size() < 2) return;
  idle_look_ = loop_.timers().Set(loop_.now() + kLookForIdleEvery, [this] { LookForIdle(); });
}

// Remove the connections before their calls receive events, because the calls may use the worker.
void ConnectionPool::Close() {
  loop_.timers().Clear(idle_look_);
  Connections all = std::exchange(open_, {});
  for (size_t i = 0; i < all.size(); ++i) loop_.worker_table().OnForgotten(row_);
  for (auto& connection : std::exchange(leaving_, {})) all.push_back(std::move(connection));
  for (auto& connection : all) {
    connection->Close();
    loop_.Bury(std::move(connection));
  }
}

void ConnectionPool::CheckPeers() {
  for (const Connections* connections : {&open_, &leaving_}) {
    for (const auto& connection : *connections) connection->CheckPeer();
  }
}

void ConnectionPool::AppendTcp(std::vector<WorkerTable::Socket>& sockets) const {
  for (const auto& connection : open_) {
    if (auto socket = connection->Tcp()) {
      sockets.push_back({row_, *std::move(socket), loop_.schedule().Load(WorkerTable::ScheduleId(row_))});
    }
  }
}

}  // namespace sluice
