#include "lib/sharing/link_turns.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "lib/scheduling/saturating_add.h"

namespace sluice {
namespace {

// A turn lasts for this number of budgets of received bytes: some milliseconds on any link whose buffer drains in some
// milliseconds.
constexpr int64_t kTurnBudgets = 2;

// A client that has received nothing for this time is unlikely to receive bytes soon. The time is long enough for some
// reports.
constexpr int64_t kStallDrainTimes = 4;
constexpr std::chrono::nanoseconds kMinStallTime = std::chrono::milliseconds(10);

// Bound of credit_bytes, in budgets: some tens of milliseconds of the link.
constexpr double kCreditBudgets = 8;

}  // namespace

LinkTurns::LinkTurns(const Clients& clients, SharingMode mode, int64_t budget_bytes,
                     std::chrono::nanoseconds drain_time)
    : clients_(clients), fifo_(mode == SharingMode::kFifo), budget_bytes_(budget_bytes), drain_time_(drain_time) {}

void LinkTurns::OnReceived(TimePoint now, SharingClient& by, int64_t bytes) {
  if (bytes <= 0) return;
  by.turn_bytes += std::min(bytes, TurnBytes() - by.turn_bytes);  // a process may report any number
  by.stalls_at = StallsAt(now);
  const bool counts = Contends(by) || any_waits_;  // even a small demand takes bytes from waiting clients
  if (!counts) return;
  by.uncredited_bytes += static_cast<double>(bytes);
  uncredited_bytes_ += static_cast<double>(bytes);
}

// A client whose bytes count contends, too.
void LinkTurns::Credit() {
  const double all_bytes = std::exchange(uncredited_bytes_, 0);
  if (all_bytes == 0) return;
  const auto contends = [&](const SharingClient& client) { return client.uncredited_bytes > 0 || Contends(client); };
  double weights = 0;
  for (const SharingClient* client : clients_) weights += contends(*client) ? client->share_weight : 0;
  const double most = kCreditBudgets * static_cast<double>(budget_bytes_);
  for (SharingClient* client : clients_) {
    if (!contends(*client)) continue;
    const double fair_bytes = all_bytes * client->share_weight / weights;
    const double credit = client->credit_bytes + fair_bytes - std::exchange(client->uncredited_bytes, 0);
    client->credit_bytes = std::clamp(credit, -most, most);
  }
}

// Serves every client, in order, whose next call fits the remaining budget. A client whose share is below that cost
// receives more than its share. It therefore rests while it is ahead and another client can use the link now. The first
// client is always served.
std::vector<SharingClient*> LinkTurns::Serve(TimePoint now) {
  Credit();
  EndStalled(now);
  any_waits_ = false;
  std::vector<SharingClient*> served;
  bool serves_needy = false;
  int64_t left_bytes = budget_bytes_;
  for (SharingClient* client : HungryInOrder()) {
    client->floor_bytes = std::clamp<int64_t>(client->report.need_bytes, 1, budget_bytes_);
    const bool ahead = client->floor_bytes > client->share_bytes && client->credit_bytes < 0 && !HasTurn(*client);
    const bool has_to_wait = client->floor_bytes > left_bytes || fifo_ || (ahead && serves_needy);
    client->waits = false;
    if (has_to_wait && !served.empty()) {
      client->in_turn = false;
      any_waits_ |= client->waits = client->needy();
      continue;
    }
    left_bytes -= client->floor_bytes;
    served.push_back(client);
    serves_needy |= client->needy();
    if (fifo_ ? HasTurn(*client) : client->in_turn) continue;
    client->in_turn = true;
    client->turn_bytes = 0;
    client->stalls_at = StallsAt(now);
    client->turn_block = client->report.oldest_block;
  }
  return served;
}

TimePoint LinkTurns::NextStall() const {
  TimePoint next = TimePoint::max();
  if (!any_waits_) return next;
  for (const SharingClient* client : clients_) {
    if (MayStall(*client)) next = std::min(next, client->stalls_at);
  }
  return next;
}

double LinkTurns::Boost(const SharingClient& client) const {
  if (fifo_) return 1;
  return std::exp2(client.credit_bytes / (kCreditBudgets * static_cast<double>(budget_bytes_)));
}

// Returns whether a client is owed credit. It is not if it demands less than its share, or waits only for its workers,
// unless it waits for its turn.
bool LinkTurns::Contends(const SharingClient& client) const {
  return client.waits || (client.needy() && client.report.demand_bytes >= client.share_bytes);
}

bool LinkTurns::HasTurn(const SharingClient& client) const {
  if (!client.in_turn) return false;
  if (fifo_) return client.turn_block == client.report.oldest_block;
  return client.turn_bytes < TurnBytes();
}

// In fifo a block has the link until it ends. A client that waits only for its workers delays no other client.
bool LinkTurns::MayStall(const SharingClient& client) const {
  return client.in_turn && client.needy() && !fifo_;
}

int64_t LinkTurns::TurnBytes() const {
  return kTurnBudgets * budget_bytes_;
}

TimePoint LinkTurns::StallsAt(TimePoint now) const {
  return SaturatingAdd(now, std::max<std::chrono::nanoseconds>(kStallDrainTimes * drain_time_, kMinStallTime));
}

// The link was idle for the waiting clients, so their earlier debts are cancelled: they are next. The turn costs the
// bytes that it could have brought; otherwise its owner would be first again.
void LinkTurns::EndStalled(TimePoint now) {
  if (!any_waits_) return;
  bool stalled = false;
  for (SharingClient* client : clients_) {
    if (!MayStall(*client) || now < client->stalls_at) continue;
    stalled = true;
    client->turn_bytes = TurnBytes();
    client->stalls_at = StallsAt(now);
    client->credit_bytes = std::min(client->credit_bytes, -static_cast<double>(TurnBytes()));
  }
  if (!stalled) return;
  for (SharingClient* client : clients_) {
    if (client->waits) client->credit_bytes = std::max(client->credit_bytes, 0.0);
  }
}

// Sorts clients in a current turn first. The other clients follow by the time of their block in fifo, otherwise by how
// far they are behind for their weight.
std::vector<SharingClient*> LinkTurns::HungryInOrder() {
  using Rank = std::tuple<bool, TimePoint, double, uint64_t, SharingClient*>;
  std::vector<Rank> ranks;
  ranks.reserve(clients_.size());
  for (SharingClient* client : clients_) {
    if (client->hungry()) {
      const double behind = fifo_ ? 0 : client->credit_bytes / client->share_weight;
      ranks.emplace_back(!HasTurn(*client), fifo_ ? client->asked_at : TimePoint(), -behind, client->id, client);
    } else {
      client->in_turn = client->waits = false;
    }
  }
  std::sort(ranks.begin(), ranks.end());
  std::vector<SharingClient*> hungry;
  hungry.reserve(ranks.size());
  for (const Rank& rank : ranks) hungry.push_back(std::get<SharingClient*>(rank));
  return hungry;
}

}  // namespace sluice
