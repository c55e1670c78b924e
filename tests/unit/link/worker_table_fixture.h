#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lib/link/worker_table.h"

namespace sluice::testing {

// A connection to a worker, as the kernel would report it.
struct FakeConnection {
  size_t worker = 0;
  TcpSocket socket;
  WorkerTable::TimePoint sent_at;
  WorkerTable::TimePoint received_at;
};

// A table with one worker and a connection to it. The clock only moves if the test moves it.
class WorkerTableTest : public ::testing::Test {
 protected:
  using TimePoint = WorkerTable::TimePoint;
  static constexpr int64_t kAnswerBytes = 10'000;
  static constexpr int64_t kPart = 1000;

  FakeConnection& Connect(size_t worker) {
    FakeConnection& connection = connections_.emplace_back();
    connection.worker = worker;
    connection.socket.inode = next_inode_++;
    connection.sent_at = connection.received_at = now_;
    LoadOf(connection);
    return connection;
  }
  void Close(const FakeConnection& connection) {
    std::erase_if(connections_, [&](const FakeConnection& other) { return &other == &connection; });
  }

  void Pass(absl::Duration time) { now_ += absl::ToChronoNanoseconds(time); }

  // Sends a request. Whether it is acknowledged before the response depends on the worker's kernel.
  void Ask(FakeConnection& connection, bool acknowledged) {
    ++LoadOf(connection).out_calls;
    connection.sent_at = now_;
    connection.socket.info.unacknowledged_packets = acknowledged ? 0 : 1;
  }
  void Ask(bool acknowledged = true) { Ask(connection_, acknowledged); }

  // The length prefix of a message has arrived, and these bytes of the message are granted.
  void Owe(FakeConnection& connection, int64_t bytes) {
    WorkerLoad& load = LoadOf(connection);
    if (load.owing_calls == 0) load.owed_since = now_;
    load.owed_bytes += bytes;
    load.owing_calls = 1;
  }
  void Owe(int64_t bytes) { Owe(connection_, bytes); }

  // Bytes arrive in the kernel, with an acknowledgement of all sent bytes.
  void ReceiveUnread(FakeConnection& connection, int64_t bytes) {
    connection.socket.info.received_bytes += static_cast<uint64_t>(bytes);
    connection.socket.info.unacknowledged_packets = 0;
    connection.received_at = now_;
  }
  // The schedule processes the bytes.
  void Read(FakeConnection& connection, int64_t bytes) {
    WorkerLoad& load = LoadOf(connection);
    if (load.owing_calls > 0 && now_ - load.owed_since >= WorkerLoad::kPause) ++load.pauses;
    load.owed_bytes = std::max<int64_t>(load.owed_bytes - bytes, 0);
    if (load.owed_bytes == 0) load.owing_calls = 0;
    load.owed_since = now_;
  }
  void Receive(FakeConnection& connection, int64_t bytes) {
    ReceiveUnread(connection, bytes);
    Read(connection, bytes);
  }
  void Receive(int64_t bytes) { Receive(connection_, bytes); }
  // Receives the prefix of a message and its first bytes.
  void ReceivePart(int64_t bytes = kPart) {
    Receive(bytes);
    Owe(kAnswerBytes - bytes);
  }
  // The schedule has not seen the packets, since an earlier packet is missing.
  void ReceiveOutOfOrder(uint32_t packets) {
    connection_.socket.info.out_of_order_packets += packets;
    connection_.received_at = now_;
  }

  void End(FakeConnection& connection) {
    WorkerLoad& load = LoadOf(connection);
    ++load.ended_calls;
    if (--load.out_calls == 0) load.owed_bytes = load.owing_calls = 0;
  }
  void End() { End(connection_); }
  // Receives a whole response, with the size that it has on the wire, and ends it.
  void Answer() {
    Receive(kAnswerBytes + 90);
    End();
  }

  std::vector<WorkerTable::Socket> Sockets() const {
    std::vector<WorkerTable::Socket> sockets;
    for (const FakeConnection& connection : connections_) {
      sockets.push_back({connection.worker, connection.socket, loads_.at(connection.worker)});
      TcpSocket& socket = sockets.back().tcp;
      socket.info.since_data_sent = absl::FromChrono(now_ - connection.sent_at);
      socket.info.since_data_received = absl::FromChrono(now_ - connection.received_at);
    }
    return sockets;
  }
  LinkSight Look(TimePoint since = TimePoint()) {
    table_.BeginLook(now_, since, since);
    table_.LookAt(now_, Sockets());
    return table_.EndLook();
  }
  LinkSight LookAfter(absl::Duration time) {
    Pass(time);
    return Look();
  }

  WorkerLoad& LoadOf(const FakeConnection& connection) { return loads_[connection.worker]; }
  std::vector<WorkerSummary> Summaries() const {
    return table_.Summaries([this](uint32_t id) {
      const auto found = loads_.find(id - 1);
      return found == loads_.end() ? WorkerLoad() : found->second;
    });
  }
  WorkerSummary Summary(size_t worker) const { return Summaries().at(worker); }
  WorkerSummary Summary() const { return Summary(worker_); }

  TimePoint now_ = TimePoint() + std::chrono::hours(1);
  std::map<size_t, WorkerLoad> loads_;  // by row
  std::deque<FakeConnection> connections_;
  uint64_t next_inode_ = 1;
  WorkerTable table_;
  const size_t worker_ = table_.Add("worker-1:20000");
  FakeConnection& connection_ = Connect(worker_);
};

}  // namespace sluice::testing
