#include "lib/link/worker_table.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"

namespace sluice {
namespace {

// Longer than a receiver may delay an acknowledgement (40 ms on Linux). Shorter than the smallest retransmission
// timeout (200 ms) by one interval between looks (100 ms).
constexpr absl::Duration kSilence = absl::Milliseconds(90);
// The kernel reports times in ticks of up to 10 ms.
constexpr absl::Duration kTick = absl::Milliseconds(10);
// Losses of several workers within this time have one cause.
constexpr std::chrono::milliseconds kTogether(500);
// The number of connections of one worker whose last report is kept. A worker has one connection, and for a while also
// the connections that it is leaving.
constexpr size_t kMaxReports = 16;
// A single call may be hard for the worker.
constexpr int64_t kHungCalls = 2;
constexpr double kMeanWeight = 1.0 / 16;

void AddToMean(absl::Duration value, absl::Duration& mean) {
  mean = mean == absl::InfiniteDuration() ? value : mean + kMeanWeight * (value - mean);
}

// A smaller count belongs to a new connection with the same port.
uint64_t Increase(uint64_t before, uint64_t now) {
  return now >= before ? now - before : now;
}

}  // namespace

size_t WorkerTable::Add(const std::string& address) {
  const auto [found, added] = by_address_.try_emplace(address, rows_.size());
  if (added) {
    if (free_.empty()) {
      rows_.emplace_back();
    } else {
      found->second = free_.back();
      free_.pop_back();
    }
    constexpr absl::Duration kUnknown = absl::InfiniteDuration();
    rows_[found->second].summary = {.address = address, .ready = kUnknown, .transfer = kUnknown, .rtt = kUnknown};
  }
  Row& row = rows_[found->second];
  if (++row.users == 1 && !added) gone_.erase(row.place);
  return found->second;
}

std::optional<size_t> WorkerTable::Remove(size_t worker) {
  Row& row = rows_[worker];
  if (--row.users > 0) return std::nullopt;
  // The time until the worker is wanted again is not a reconnect time.
  row.lost_at.reset();
  row.unanswered = 0;
  row.unreachable = row.lossy = row.paused = row.hung = false;
  row.place = gone_.insert(gone_.end(), worker);
  if (gone_.size() <= kMaxGone) return std::nullopt;
  const size_t forgotten = gone_.front();
  gone_.pop_front();
  free_.push_back(forgotten);
  by_address_.erase(rows_[forgotten].summary.address);
  rows_[forgotten] = {.generation = rows_[forgotten].generation + 1};
  return forgotten;
}

bool WorkerTable::IsWanted(const std::string& address) const {
  const auto row = by_address_.find(address);
  return row != by_address_.end() && rows_[row->second].users > 0;
}

std::optional<absl::Duration> WorkerTable::OnConnected(size_t worker, TimePoint now) {
  Row& row = rows_[worker];
  ++row.connections;
  row.unreachable = false;
  const std::optional<TimePoint> lost_at = std::exchange(row.lost_at, std::nullopt);
  if (!lost_at.has_value()) return std::nullopt;
  return absl::FromChrono(now - *lost_at);
}

void WorkerTable::OnLost(size_t worker, TimePoint now) {
  Row& row = rows_[worker];
  if (--row.connections == 0) {
    row.lost_at = now;
    row.unreachable = true;
  }
  row.losses.unacknowledged_response = 0;
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

void WorkerTable::OnArrived(size_t worker, absl::Duration ready_after, absl::Duration transfer) {
  WorkerSummary& summary = rows_[worker].summary;
  rows_[worker].unanswered = 0;
  ++summary.responses;
  AddToMean(ready_after, summary.ready);
  AddToMean(transfer, summary.transfer);
}

void WorkerTable::OnUnanswered(size_t worker) {
  Row& row = rows_[worker];
  if (++row.unanswered >= kHungCalls) row.hung = true;
}

WorkerTable::Reported WorkerTable::OnReport(size_t worker, uint16_t port, const Reported& counts) {
  std::deque<std::pair<uint16_t, Reported>>& reports = rows_[worker].reports;
  const auto found = absl::c_find_if(reports, [port](const auto& report) { return report.first == port; });
  Reported last;
  if (found != reports.end()) {
    last = found->second;
    reports.erase(found);
  }
  reports.emplace_back(port, counts);
  if (reports.size() > kMaxReports) reports.pop_front();
  return {.retransmits = Increase(last.retransmits, counts.retransmits), .rtos = Increase(last.rtos, counts.rtos)};
}

void WorkerTable::BeginLook(TimePoint now, TimePoint settled, TimePoint counted_since) {
  began_ = now;
  settled_ = settled;
  if (std::exchange(counted_since_, counted_since) != counted_since) worst_out_of_order_ = 0;
}

void WorkerTable::LookAt(TimePoint now, absl::Span<const Socket> sockets) {
  for (const Socket& socket : sockets) {
    Row& row = rows_[socket.worker];
    const TcpInfo& info = socket.tcp.info;
    const bool carries_calls = socket.tunnel == nullptr;
    const Seen last = std::exchange(carries_calls ? seen_[socket.tcp.inode] : socket.tunnel->seen,
                                    {info.out_of_order_packets, info.received_bytes, looks_});
    if (carries_calls) {
      ++sight_.connections;
      rtt_sum_ += info.smoothed_rtt;
    }
    row.summary.rtt = info.smoothed_rtt;
    if (info.min_rtt.has_value()) sight_.min_rtt = std::min(*info.min_rtt, sight_.min_rtt.value_or(*info.min_rtt));
    const uint64_t received_bytes = info.received_bytes - last.received_bytes;
    const uint32_t out_of_order_packets = info.out_of_order_packets - last.out_of_order_packets;
    sight_.received_bytes += received_bytes;
    sight_.out_of_order_packets += out_of_order_packets;
    const bool heard = received_bytes > 0 || out_of_order_packets > 0;
    const bool active = heard || socket.load.out_calls > 0;
    if (active && std::exchange(row.seen_active, looks_) != looks_) ++sight_.active_workers;
    // Handle a silence that is over first: its response may have ended since.
    Losses& losses = carries_calls ? row.losses : socket.tunnel->losses;
    if (heard || socket.load.pauses > losses.pauses) OnHeard(socket, losses, now);
    const int64_t response = NumberOf(socket.load);
    if (out_of_order_packets > 0 && Lost(row, losses, response) > 0) CountOutOfOrder(row);
    const bool unacknowledged = IsUnacknowledged(socket.load, info);
    if (unacknowledged) losses.unacknowledged_response = response;
    if (carries_calls && (unacknowledged || out_of_order_packets > 0)) {
      sight_.lossy_now.push_back(ScheduleId(socket.worker));
    }
  }
}

LinkSight WorkerTable::EndLook() {
  if (sight_.connections > 0) sight_.smoothed_rtt = rtt_sum_ / sight_.connections;
  absl::erase_if(seen_, [this](const auto& entry) { return entry.second.look != looks_; });
  sight_.lossy_workers = CountLossy();
  if (sight_.lossy_workers > 0) {
    const uint64_t since = lossy_.front().look;
    sight_.active_workers = absl::c_count_if(rows_, [since](const Row& row) { return row.seen_active >= since; });
  }
  sight_.worst_out_of_order = worst_out_of_order_;
  ++looks_;
  rtt_sum_ = absl::ZeroDuration();
  return std::exchange(sight_, LinkSight());
}

void WorkerTable::CountOutOfOrder(Row& row) {
  ++sight_.losses_out_of_order;
  if (began_ < counted_since_) return;
  if (std::exchange(row.counted_since, counted_since_) != counted_since_) row.out_of_order = 0;
  worst_out_of_order_ = std::max(worst_out_of_order_, ++row.out_of_order);
}

int64_t WorkerTable::CountLossy() {
  while (!lossy_.empty() && lossy_.front().time < std::max(began_ - kTogether, settled_)) lossy_.pop_front();
  absl::flat_hash_set<size_t> workers;
  for (const Loss& loss : lossy_) workers.insert(loss.worker);
  return static_cast<int64_t>(workers.size());
}

// Returns the number of the current response, or of the last one. Responses are numbered as they end.
int64_t WorkerTable::NumberOf(const WorkerLoad& load) {
  return load.ended_calls + (load.out_calls > 0 ? 1 : 0);
}

// Returns 1 once for each response, and then 0: several packets, looks or signs of a loss count as one loss.
int64_t WorkerTable::Lost(Row& row, Losses& losses, int64_t response) {
  if (std::exchange(losses.lost_response, response) == response) return 0;
  ++row.summary.losses;
  return 1;
}

// Ends a silence of the worker, and attributes it to the network or to a pause.
void WorkerTable::OnHeard(const Socket& socket, Losses& losses, TimePoint now) {
  Row& row = rows_[socket.worker];
  const WorkerLoad& load = socket.load;
  // Ignore pauses on a path with a long round trip, where each grant takes as long as a pause.
  const bool paused = load.pauses > losses.pauses && socket.tcp.info.smoothed_rtt < kSilence;
  // The kernel may have bytes that are not read yet. The schedule then counts this silence after the look.
  const bool unread = load.owing_calls > 0 && now - load.owed_since >= WorkerLoad::kPause;
  losses.pauses = load.pauses + (unread && losses.unacknowledged_response != 0 ? 1 : 0);
  const int64_t unacknowledged = std::exchange(losses.unacknowledged_response, 0);
  if (unacknowledged == 0 && !paused) return;
  ++row.summary.rtos;
  ++sight_.rto_waits;
  if (unacknowledged == 0) {
    row.paused = true;
    sight_.losses_paused += Lost(row, losses, NumberOf(load));
    return;
  }
  lossy_.push_back({began_, looks_, socket.worker});
  row.lossy = true;
  sight_.losses_silent += Lost(row, losses, unacknowledged);
}

bool WorkerTable::IsUnacknowledged(const WorkerLoad& load, const TcpInfo& info) {
  return load.out_calls > 0 && info.since_data_received >= kSilence && info.unacknowledged_packets > 0 &&
         info.since_data_sent >= kSilence - kTick + info.smoothed_rtt;
}

std::vector<WorkerSummary> WorkerTable::Summaries(absl::FunctionRef<WorkerLoad(uint32_t schedule_id)> load_of) const {
  std::vector<WorkerSummary> summaries;
  summaries.reserve(rows_.size());
  for (size_t worker = 0; worker < rows_.size(); ++worker) {
    if (rows_[worker].users == 0) continue;
    summaries.push_back(rows_[worker].summary);
    summaries.back().in_flight = load_of(ScheduleId(worker)).out_calls;
  }
  return summaries;
}

std::vector<WorkerFaults::Sight> WorkerTable::TakeFaultSights(
    absl::FunctionRef<WorkerLoad(uint32_t schedule_id)> load_of) {
  std::vector<WorkerFaults::Sight> sights;
  for (size_t worker = 0; worker < rows_.size(); ++worker) {
    Row& row = rows_[worker];
    if (row.users == 0) continue;
    const WorkerLoad load = load_of(ScheduleId(worker));
    const WorkerFaults::Sight sight{.address = row.summary.address,
                                    .unreachable = row.unreachable,
                                    .stalled = load.stalled_calls > 0,
                                    .slow = load.slow,
                                    .ejected = row.ejections > 0,
                                    .hung = std::exchange(row.hung, false),
                                    .paused = std::exchange(row.paused, false),
                                    .lossy = std::exchange(row.lossy, false)};
    if (sight.any()) sights.push_back(sight);
  }
  return sights;
}

}  // namespace sluice
