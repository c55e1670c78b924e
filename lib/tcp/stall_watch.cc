#include "lib/tcp/stall_watch.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr size_t kBroad = 3;  // connections
constexpr absl::Duration kPeakWindow = absl::Milliseconds(100);
constexpr uint64_t kLeastResponseBytes = 64;  // less are frames that carry no response, such as a PING
constexpr absl::Duration kWaitStep = absl::Milliseconds(20);
constexpr size_t kMaxLongWaits = 1000;  // of a connection

absl::Duration MedianWait(const std::map<int64_t, uint64_t>& waits) {
  uint64_t all = 0;
  for (const auto& [steps, count] : waits) all += count;
  uint64_t below = 0;
  for (const auto& [steps, count] : waits) {
    below += count;
    if (2 * below >= all) return steps * kWaitStep;
  }
  return absl::ZeroDuration();
}

// Returns how long the connection has been stalled; nothing if it is not.
std::optional<absl::Duration> StalledFor(const TcpSocket& socket) {
  const TcpInfo& info = socket.info;
  std::optional<absl::Duration> stalled;
  if (info.unacknowledged_packets > 0 && info.since_data_sent >= StallWatch::kStall) stalled = info.since_data_sent;
  if (socket.misses_packet && info.since_data_received >= StallWatch::kStall) {
    stalled = std::max(stalled.value_or(absl::ZeroDuration()), info.since_data_received);
  }
  return stalled;
}

uint64_t Growth(uint64_t before, uint64_t now) {
  return now > before ? now - before : 0;
}

}  // namespace

void StallWatch::Direction::EndRound(absl::Duration now) {
  flow.most_at_once = std::max(flow.most_at_once, at_once);
  if (at_once > 0) ++flow.busy_rounds;
  if (at_once >= kBroad) ++flow.broad_rounds;
  at_once = 0;
  if (now - peak_begin < kPeakWindow) return;
  const double rate = static_cast<double>(bytes - peak_begin_bytes) / absl::ToDoubleSeconds(now - peak_begin);
  flow.peak_bytes_per_second = std::max(flow.peak_bytes_per_second, rate);
  peak_begin = now;
  peak_begin_bytes = bytes;
}

void StallWatch::Way::Carry(uint64_t more_bytes, bool may_begin_burst) {
  bytes += more_bytes;
  if (more_bytes > 0 && !was_busy && may_begin_burst) ++bursts;
  was_busy = more_bytes > 0;
}

void StallWatch::Add(absl::Duration now, absl::Span<const TcpSocket> sockets) {
  for (const TcpSocket& socket : sockets) {
    if (port_.has_value() && socket.local.port() != *port_ && socket.remote.port() != *port_) continue;
    if (socket.remote.address().is_loopback() || socket.remote.address() == socket.local.address()) continue;
    const auto [found, is_new] = connections_.try_emplace(socket.inode);
    Connection& connection = found->second;
    // Bytes from before the watch do not count, nor does a stall that has already begun.
    if (!is_new) Update(connection, now, socket);
    connection.last = socket;
    connection.round = round_;
  }
}

void StallWatch::Update(Connection& connection, absl::Duration now, const TcpSocket& socket) {
  const TcpInfo& before = connection.last.info;
  const uint64_t received = Growth(before.received_bytes, socket.info.received_bytes);
  const uint64_t sent = Growth(before.acknowledged_bytes, socket.info.acknowledged_bytes);
  const bool was_stalled = connection.stall.has_value();
  connection.received.Carry(received, !was_stalled);
  connection.sent.Carry(sent, !was_stalled);
  Direction& outgoing = outgoing_[socket.remote.address()];
  incoming_.bytes += received;
  outgoing.bytes += sent;
  if (received > sent) ++incoming_.at_once;
  if (sent > received) ++outgoing.at_once;
  UpdateWait(connection, now, socket, received);

  if (const auto stalled_for = StalledFor(socket); stalled_for.has_value()) {
    if (!was_stalled) BeginStall(connection, now, *stalled_for);
    return;
  }
  if (was_stalled) return EndStall(connection, now, socket.info);
  // A retransmission timeout that was too short to see.
  if (socket.info.rtos.has_value() && before.rtos.has_value() && *socket.info.rtos != *before.rtos) {
    connection.sent.stalls.push_back({.begin = now, .seen = now, .end = now, .host = socket.remote.address()});
  }
}

void StallWatch::UpdateWait(Connection& connection, absl::Duration now, const TcpSocket& socket, uint64_t received) {
  const TcpInfo& info = socket.info;
  if (received >= kLeastResponseBytes) {
    const absl::Duration end = now - info.since_data_received;
    const absl::Duration begin = std::min(connection.waits_since.value_or(end), end);
    ++incoming_.waits[(end - begin) / kWaitStep];
    if (end - begin >= kLongWait && connection.long_waits.size() < kMaxLongWaits) {
      connection.long_waits.push_back({.begin = begin, .seen = end, .end = end, .host = socket.remote.address()});
    }
    connection.waits_since.reset();
  }
  if (info.since_data_sent < info.since_data_received) connection.waits_since = now - info.since_data_sent;
}

void StallWatch::BeginStall(Connection& connection, absl::Duration now, absl::Duration stalled_for) {
  const Address& host = connection.last.remote.address();
  connection.stall = TcpStall{.begin = now - stalled_for, .seen = now, .host = host};
  connection.received.flow_bytes_before_stall = incoming_.bytes;
  connection.sent.flow_bytes_before_stall = outgoing_[host].bytes;
  connection.retransmitted_before_stall = connection.last.info.retransmitted_packets;
}

void StallWatch::EndStall(Connection& connection, absl::Duration now, const TcpInfo& info) {
  if (!connection.stall.has_value()) return;
  TcpStall stall = *std::exchange(connection.stall, std::nullopt);
  stall.end = now;
  stall.flow_bytes = incoming_.bytes - connection.received.flow_bytes_before_stall;
  connection.received.stalls.push_back(stall);
  if (info.retransmitted_packets == connection.retransmitted_before_stall) return;
  stall.flow_bytes = outgoing_[stall.host].bytes - connection.sent.flow_bytes_before_stall;
  connection.sent.stalls.push_back(std::move(stall));
}

void StallWatch::EndRound(absl::Duration now) {
  incoming_.EndRound(now);
  for (auto& [address, direction] : outgoing_) direction.EndRound(now);
  for (auto entry = connections_.begin(); entry != connections_.end();) {
    const auto current = entry++;
    if (current->second.round == round_) continue;
    Close(current->second, now);
    connections_.erase(current);
  }
  ++round_;
}

void StallWatch::Close(Connection& connection, absl::Duration now) {
  EndStall(connection, now, connection.last.info);
  if (connection.received.bytes + connection.sent.bytes == 0 && connection.sent.stalls.empty()) return;
  const Address& remote = connection.last.remote.address();
  const bool is_incoming = connection.received.bytes > connection.sent.bytes;
  Way& way = is_incoming ? connection.received : connection.sent;
  Direction& direction = is_incoming ? incoming_ : outgoing_[remote];
  TcpFlow& flow = direction.flow;
  flow.bytes += way.bytes;
  flow.bursts += way.bursts;
  for (TcpStall& stall : way.stalls) {
    stall.connection = flow.connections;
    flow.stalls.push_back(std::move(stall));
  }
  for (TcpStall& wait : connection.long_waits) {
    wait.connection = flow.connections;
    if (is_incoming) flow.long_waits.push_back(std::move(wait));
  }
  ++flow.connections;
  direction.hosts.insert(remote);
}

std::vector<TcpFlow> StallWatch::Finish(absl::Duration now) {
  for (auto& [inode, connection] : connections_) Close(connection, now);
  connections_.clear();
  std::vector<TcpFlow> flows;
  const auto finish = [&flows](Direction& direction) {
    if (direction.flow.connections == 0) return;
    direction.flow.hosts = direction.hosts.size();
    for (auto* stalls : {&direction.flow.stalls, &direction.flow.long_waits}) {
      std::sort(stalls->begin(), stalls->end(), [](const TcpStall& a, const TcpStall& b) { return a.begin < b.begin; });
    }
    flows.push_back(std::move(direction.flow));
  };
  incoming_.flow.median_wait = MedianWait(incoming_.waits);
  finish(incoming_);
  for (auto& [address, direction] : outgoing_) {
    direction.flow.to = address;
    finish(direction);
  }
  return flows;
}

}  // namespace sluice
