#include "lib/telemetry/worker_table.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// Longer than a receiver may delay an acknowledgement (40 ms on Linux), shorter than the least retransmission timeout
// (200 ms) by a look at the connections, which come a tenth of a second apart. On a busy machine, answers that are
// not lost may take half of it.
constexpr absl::Duration kSilence = absl::Milliseconds(90);
// What HTTP/2 and gRPC put around an answer, at most; and less than a full packet, more than pings and window updates.
constexpr int64_t kOverheadBytes = 160;
constexpr int64_t kPartBytes = 1000;
// The kernel tells times in ticks of up to 10 ms.
constexpr absl::Duration kTick = absl::Milliseconds(10);
constexpr double kMeanWeight = 1.0 / 16;

void AddToMean(absl::Duration value, absl::Duration& mean) {
  mean = mean == absl::InfiniteDuration() ? value : mean + kMeanWeight * (value - mean);
}

uint64_t Increase(uint64_t& last, uint64_t now) {
  // A smaller count is that of another connection: it has begun anew.
  const uint64_t before = std::exchange(last, now);
  return now >= before ? now - before : now;
}

}  // namespace

size_t WorkerTable::Add(const std::string& address) {
  const auto [found, added] = by_address_.try_emplace(address, rows_.size());
  if (added) {
    constexpr absl::Duration kUnknown = absl::InfiniteDuration();
    rows_.push_back({.summary = {.address = address, .ready = kUnknown, .transfer = kUnknown, .rtt = kUnknown}});
  }
  ++rows_[found->second].users;
  return found->second;
}

void WorkerTable::Remove(size_t worker) {
  Row& row = rows_[worker];
  // The pause until somebody wants it again is not the time of a reconnect.
  if (--row.users == 0) row.lost_at.reset();
}

std::optional<absl::Duration> WorkerTable::OnConnected(size_t worker, TimePoint now) {
  Row& row = rows_[worker];
  ++row.connections;
  const std::optional<TimePoint> lost_at = std::exchange(row.lost_at, std::nullopt);
  if (!lost_at.has_value()) return std::nullopt;
  return absl::FromChrono(now - *lost_at);
}

void WorkerTable::OnLost(size_t worker, TimePoint now) {
  Row& row = rows_[worker];
  if (--row.connections == 0) row.lost_at = now;
  row.silent = false;
}

void WorkerTable::OnForgotten(size_t worker) {
  --rows_[worker].connections;
}

WorkerTable::Reach WorkerTable::CountReached() const {
  Reach reach;
  for (const Row& row : rows_) {
    if (row.users == 0) continue;
    ++reach.wanted;
    if (row.connections > 0) ++reach.connected;
  }
  return reach;
}

void WorkerTable::OnAsked(size_t worker, TimePoint now, bool in_parts) {
  Row& row = rows_[worker];
  ++row.summary.in_flight;
  row.waiting_since = now;
  row.in_parts = in_parts;
}

void WorkerTable::OnPaused(size_t worker) {
  ++rows_[worker].paused;
}

void WorkerTable::OnResumed(size_t worker, TimePoint now) {
  Row& row = rows_[worker];
  --row.paused;
  row.waiting_since = now;
}

void WorkerTable::OnEnded(size_t worker, TimePoint now, int64_t answer_bytes) {
  Row& row = rows_[worker];
  --row.summary.in_flight;
  ++row.ended;
  row.ended_bytes += answer_bytes + kOverheadBytes;
  row.waiting_since = now;
}

void WorkerTable::OnAnswered(size_t worker, absl::Duration ready_after, absl::Duration transfer) {
  WorkerSummary& summary = rows_[worker].summary;
  ++summary.answers;
  AddToMean(ready_after, summary.ready);
  AddToMean(transfer, summary.transfer);
}

WorkerTable::Reported WorkerTable::OnReport(size_t worker, uint16_t port, const Reported& counts) {
  Reported& last = rows_[worker].reported[port];
  return {.retransmits = Increase(last.retransmits, counts.retransmits), .rtos = Increase(last.rtos, counts.rtos)};
}

LinkSight WorkerTable::Look(TimePoint now, absl::Span<const Socket> sockets) {
  LinkSight sight;
  absl::Duration rtt_sum;
  absl::flat_hash_map<uint64_t, Seen> seen;
  for (const Socket& socket : sockets) {
    Row& row = rows_[socket.worker];
    const TcpInfo& info = socket.tcp.info;
    const auto before = seen_.find(socket.tcp.inode);
    const Seen last = before == seen_.end() ? Seen() : before->second;
    seen[socket.tcp.inode] = {info.out_of_order_packets, info.received_bytes};
    ++sight.connections;
    rtt_sum += info.smoothed_rtt;
    row.summary.rtt = info.smoothed_rtt;
    if (info.min_rtt.has_value()) sight.min_rtt = std::min(*info.min_rtt, sight.min_rtt.value_or(*info.min_rtt));
    const uint64_t received_bytes = info.received_bytes - last.received_bytes;
    sight.received_bytes += received_bytes;
    const uint32_t out_of_order_packets = info.out_of_order_packets - last.out_of_order_packets;
    sight.out_of_order_packets += out_of_order_packets;
    const bool heard = received_bytes > 0 || out_of_order_packets > 0;
    // First the answer that waited, which may have ended since.
    if (heard && std::exchange(row.silent, false)) {
      ++row.summary.rtos;
      ++sight.rto_waits;
      if (Lost(row, row.waiting_answer)) ++sight.losses_silent;
    }
    if (out_of_order_packets > 0 && Lost(row, row.CurrentAnswer())) ++sight.losses_out_of_order;
    SetPending(row, received_bytes, now);
    if (row.waiting_answer == row.CurrentAnswer() || !WaitsForRto(row, info, now)) continue;
    row.waiting_answer = row.CurrentAnswer();
    row.silent = true;
  }
  if (sight.connections > 0) sight.smoothed_rtt = rtt_sum / sight.connections;
  seen_ = std::move(seen);
  return sight;
}

// True once for an answer, so that a loss which several packets, looks or signs tell of is one.
bool WorkerTable::Lost(Row& row, int64_t answer) {
  if (std::exchange(row.lost_answer, answer) == answer) return false;
  ++row.summary.losses;
  return true;
}

// An estimate, which is put right whenever nothing is asked for.
void WorkerTable::SetPending(Row& row, uint64_t received_bytes, TimePoint now) {
  row.pending_bytes += static_cast<int64_t>(received_bytes);
  // What has ended since the look began may not be in what it saw: the next one will tell.
  if (row.waiting_since > now) return;
  const int64_t pending = row.pending_bytes - std::exchange(row.ended_bytes, 0);
  row.pending_bytes = row.summary.in_flight == 0 ? 0 : std::max<int64_t>(pending, 0);
}

bool WorkerTable::WaitsForRto(const Row& row, const TcpInfo& info, TimePoint now) {
  if (row.summary.in_flight == row.paused) return false;
  const absl::Duration waiting = absl::FromChrono(now - row.waiting_since);
  if (waiting < kSilence || info.since_data_received < kSilence) return false;
  const bool came_in_part = row.pending_bytes >= kPartBytes && !row.in_parts;
  const bool unacknowledged = info.unacknowledged_packets > 0 && info.since_data_sent >= kSilence - kTick;
  return came_in_part || unacknowledged;
}

std::vector<WorkerSummary> WorkerTable::Summaries() const {
  std::vector<WorkerSummary> summaries;
  summaries.reserve(rows_.size());
  for (const Row& row : rows_) {
    if (row.users > 0) summaries.push_back(row.summary);
  }
  return summaries;
}

}  // namespace sluice
