#include "lib/telemetry/worker_table.h"

#include <algorithm>
#include <utility>

#include "lib/telemetry/peer_name.h"

namespace sluice {
namespace {

// Longer than a receiver may delay an acknowledgement (40 ms on Linux), shorter than the least retransmission timeout
// (200 ms), by enough for the looks at the connections, a tenth of a second apart.
constexpr absl::Duration kSilence = absl::Milliseconds(60);
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
  absl::MutexLock lock(&mutex_);
  const auto [found, added] = by_address_.try_emplace(address, rows_.size());
  if (added) {
    constexpr absl::Duration kUnknown = absl::InfiniteDuration();
    rows_.push_back({.summary = {.address = address, .ready = kUnknown, .transfer = kUnknown, .rtt = kUnknown}});
  }
  return found->second;
}

void WorkerTable::OnAsked(size_t worker, TimePoint now, bool in_parts) {
  absl::MutexLock lock(&mutex_);
  Row& row = rows_[worker];
  ++row.summary.in_flight;
  row.waiting_since = now;
  row.in_parts = in_parts;
}

void WorkerTable::OnEnded(size_t worker, TimePoint now, const std::string& peer) {
  absl::MutexLock lock(&mutex_);
  Row& row = rows_[worker];
  --row.summary.in_flight;
  ++row.ended;
  row.waiting_since = now;
  if (!peer.empty() && peer != row.peer) SetPeer(worker, peer);
}

void WorkerTable::OnAnswered(size_t worker, absl::Duration ready_after, absl::Duration transfer) {
  absl::MutexLock lock(&mutex_);
  WorkerSummary& summary = rows_[worker].summary;
  ++summary.answers;
  AddToMean(ready_after, summary.ready);
  AddToMean(transfer, summary.transfer);
}

WorkerTable::Reported WorkerTable::OnReport(size_t worker, uint16_t port, const Reported& counts) {
  absl::MutexLock lock(&mutex_);
  Reported& last = rows_[worker].reported[port];
  return {.retransmits = Increase(last.retransmits, counts.retransmits), .rtos = Increase(last.rtos, counts.rtos)};
}

void WorkerTable::SetPeer(size_t worker, const std::string& peer) {
  Row& row = rows_[worker];
  row.peer = peer;
  std::erase_if(by_endpoint_, [worker](const auto& entry) { return entry.second == worker; });
  if (const std::optional<TcpEndpoint> endpoint = ParsePeerName(peer)) by_endpoint_[*endpoint] = worker;
}

WorkerTable::Row* WorkerTable::RowOf(const TcpSocket& socket) {
  const auto found = by_endpoint_.find(socket.remote);
  return found == by_endpoint_.end() ? nullptr : &rows_[found->second];
}

LinkSight WorkerTable::Look(TimePoint now, absl::Span<const TcpSocket> sockets) {
  absl::MutexLock lock(&mutex_);
  LinkSight sight;
  absl::Duration rtt_sum;
  absl::flat_hash_map<uint64_t, Seen> seen;
  absl::flat_hash_map<Row*, const TcpInfo*> last_used;  // a worker's connection that we sent on last
  for (const TcpSocket& socket : sockets) {
    Row* const row = RowOf(socket);
    if (row == nullptr) continue;
    const TcpInfo& info = socket.info;
    const auto before = seen_.find(socket.inode);
    const Seen last = before == seen_.end() ? Seen() : before->second;
    seen[socket.inode] = {info.out_of_order_packets, info.received_bytes};
    ++sight.connections;
    rtt_sum += info.smoothed_rtt;
    row->summary.rtt = info.smoothed_rtt;
    if (info.min_rtt.has_value()) sight.min_rtt = std::min(*info.min_rtt, sight.min_rtt.value_or(*info.min_rtt));
    sight.received_bytes += info.received_bytes - last.received_bytes;
    const uint32_t out_of_order_packets = info.out_of_order_packets - last.out_of_order_packets;
    sight.out_of_order_packets += out_of_order_packets;
    if (out_of_order_packets > 0 && Lost(*row)) ++sight.losses_out_of_order;
    const TcpInfo*& used = last_used[row];
    if (used == nullptr || info.since_data_sent < used->since_data_sent) used = &info;
  }
  if (sight.connections > 0) sight.smoothed_rtt = rtt_sum / sight.connections;
  for (const auto& [row, info] : last_used) {
    if (!WaitsForRto(*row, *info, now)) continue;
    if (Lost(*row)) ++sight.losses_silent;
    if (row->waiting_answer == row->CurrentAnswer()) continue;
    row->waiting_answer = row->CurrentAnswer();
    ++row->summary.rtos;
    ++sight.rto_waits;
  }
  seen_ = std::move(seen);
  return sight;
}

// True once for an answer, so that a loss which several packets, looks or signs tell of is one.
bool WorkerTable::Lost(Row& row) {
  if (row.lost_answer == row.CurrentAnswer()) return false;
  row.lost_answer = row.CurrentAnswer();
  ++row.summary.losses;
  return true;
}

bool WorkerTable::WaitsForRto(const Row& row, const TcpInfo& info, TimePoint now) {
  if (row.summary.in_flight == 0) return false;
  const absl::Duration waiting = absl::FromChrono(now - row.waiting_since);
  if (waiting < kSilence || info.since_data_received < kSilence) return false;
  const bool came_in_part = info.since_data_received < waiting - kTick && !row.in_parts;
  const bool unacknowledged = info.unacknowledged_packets > 0 && info.since_data_sent >= kSilence - kTick;
  return came_in_part || unacknowledged;
}

std::vector<WorkerSummary> WorkerTable::Summaries() const {
  absl::MutexLock lock(&mutex_);
  std::vector<WorkerSummary> summaries;
  summaries.reserve(rows_.size());
  for (const Row& row : rows_) summaries.push_back(row.summary);
  return summaries;
}

}  // namespace sluice
