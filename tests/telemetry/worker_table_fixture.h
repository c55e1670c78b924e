#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lib/telemetry/worker_table.h"

namespace sluice::testing {

// A connection to a worker, as the kernel would tell of it.
struct FakeConnection {
  size_t worker = 0;
  TcpSocket socket;
  WorkerTable::TimePoint sent_at;
  WorkerTable::TimePoint received_at;
};

// A table with one worker and a connection to it, and a clock that stands still unless the test moves it.
class WorkerTableTest : public ::testing::Test {
 protected:
  using TimePoint = WorkerTable::TimePoint;
  static constexpr int64_t kAnswerBytes = 10'000;

  FakeConnection& Connect(size_t worker) {
    FakeConnection& connection = connections_.emplace_back();
    connection.worker = worker;
    connection.socket.inode = next_inode_++;
    connection.sent_at = connection.received_at = now_;
    return connection;
  }
  void Close(const FakeConnection& connection) {
    std::erase_if(connections_, [&](const FakeConnection& other) { return &other == &connection; });
  }

  void Pass(absl::Duration time) { now_ += absl::ToChronoNanoseconds(time); }

  // A request leaves; whether it is acknowledged before the answer comes is up to the worker's kernel.
  void Ask(FakeConnection& connection, bool acknowledged, bool in_parts = false) {
    table_.OnAsked(worker_, now_, in_parts);
    connection.sent_at = now_;
    connection.socket.info.unacknowledged_packets = acknowledged ? 0 : 1;
  }
  void Ask(bool acknowledged = true) { Ask(connection_, acknowledged); }
  // A stream.
  void AskForParts(bool acknowledged) { Ask(connection_, acknowledged, true); }

  // With what acknowledges all that was sent.
  void Receive(FakeConnection& connection, int64_t bytes) {
    connection.socket.info.received_bytes += static_cast<uint64_t>(bytes);
    connection.socket.info.unacknowledged_packets = 0;
    connection.received_at = now_;
  }
  void Receive(int64_t bytes) { Receive(connection_, bytes); }
  void ReceiveOutOfOrder(uint32_t packets) {
    connection_.socket.info.out_of_order_packets += packets;
    connection_.received_at = now_;
  }

  void End(int64_t answer_bytes = kAnswerBytes) { table_.OnEnded(worker_, now_, answer_bytes); }
  // All of an answer, as it is on the wire, and its end.
  void Answer() {
    Receive(kAnswerBytes + 90);
    End();
  }

  std::vector<WorkerTable::Socket> Sockets() const {
    std::vector<WorkerTable::Socket> sockets;
    for (const FakeConnection& connection : connections_) {
      sockets.push_back({connection.worker, connection.socket});
      TcpSocket& socket = sockets.back().tcp;
      socket.info.since_data_sent = absl::FromChrono(now_ - connection.sent_at);
      socket.info.since_data_received = absl::FromChrono(now_ - connection.received_at);
    }
    return sockets;
  }
  LinkSight Look() { return table_.Look(now_, Sockets()); }
  LinkSight LookAfter(absl::Duration time) {
    Pass(time);
    return Look();
  }

  WorkerSummary Summary(size_t worker) const { return table_.Summaries().at(worker); }
  WorkerSummary Summary() const { return Summary(worker_); }

  TimePoint now_ = TimePoint() + std::chrono::hours(1);
  std::deque<FakeConnection> connections_;
  uint64_t next_inode_ = 1;
  WorkerTable table_;
  const size_t worker_ = table_.Add("worker-1:20000");
  FakeConnection& connection_ = Connect(worker_);
};

}  // namespace sluice::testing
