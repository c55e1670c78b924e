#include "lib/sharing/link_turns.h"

#include <algorithm>
#include <cmath>
#include <tuple>

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

LinkTurns::LinkTurns(Clients& clients, SharingMode mode, int64_t budget_bytes, std::chrono::nanoseconds drain_time)
    : clients_(clients), fifo_(mode == SharingMode::kFifo), budget_bytes_(budget_bytes), drain_time_(drain_time) {}

void LinkTurns::OnReceived(TimePoint now, SharingClient& by, int64_t bytes) {
  if (bytes <= 0) return;
  by.turn_bytes += std::min(bytes, TurnBytes() - by.turn_bytes);  // a process may report any number
  by.stalls_at = StallsAt(now);
  const bool counts = Contends(by) || AnyWaits();  // even a small demand takes bytes from waiting clients
  if (!counts) return;
  const auto contends = [&](const SharingClient& client) { return &client == &by || Contends(client); };
  double weights = 0;
  for (const auto& [id, client] : clients_) weights += contends(client) ? client.share_weight : 0;
  const double most = kCreditBudgets * static_cast<double>(budget_bytes_);
  for (auto& [id, client] : clients_) {
    if (!contends(client)) continue;
    double credit = client.credit_bytes + static_cast<double>(bytes) * client.share_weight / weights;
    if (&client == &by) credit -= static_cast<double>(bytes);
    client.credit_bytes = std::clamp(credit, -most, most);
  }
}

// Serves every client, in order, whose next call fits the remaining budget. A client whose share is below that cost
// receives more than its share. It therefore rests while it is ahead and another client can use the link now. The first
// client is always served.
std::vector<SharingClient*> LinkTurns::Serve(TimePoint now) {
  EndStalled(now);
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
      client->waits = client->needy();
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
  if (!AnyWaits()) return next;
  for (const auto& [id, client] : clients_) {
    if (MayStall(client)) next = std::min(next, client.stalls_at);
  }
  return next;
}

double LinkTurns::Boost(const SharingClient& client) const {
  if (fifo_) return 1;
  return std::exp2(client.credit_bytes / (kCreditBudgets * static_cast<double>(budget_bytes_)));
}

bool LinkTurns::AnyWaits() const {
  return std::any_of(clients_.begin(), clients_.end(), [](const auto& client) { return client.second.waits; });
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
  if (!AnyWaits()) return;
  for (auto& [id, stalled] : clients_) {
    if (!MayStall(stalled) || now < stalled.stalls_at) continue;
    stalled.turn_bytes = TurnBytes();
    stalled.stalls_at = StallsAt(now);
    stalled.credit_bytes = std::min(stalled.credit_bytes, -static_cast<double>(TurnBytes()));
    for (auto& [other, client] : clients_) {
      if (client.waits) client.credit_bytes = std::max(client.credit_bytes, 0.0);
    }
  }
}

// Sorts clients in a current turn first. The other clients follow by the time of their block in fifo, otherwise by how
// far they are behind for their weight.
std::vector<SharingClient*> LinkTurns::HungryInOrder() {
  const auto rank = [this](const SharingClient& client) {
    const double behind = fifo_ ? 0 : client.credit_bytes / client.share_weight;
    return std::make_tuple(!HasTurn(client), fifo_ ? client.asked_at : TimePoint(), -behind, client.id);
  };
  std::vector<SharingClient*> hungry;
  for (auto& [id, client] : clients_) {
    if (client.hungry()) {
      hungry.push_back(&client);
    } else {
      client.in_turn = client.waits = false;
    }
  }
  std::sort(hungry.begin(), hungry.end(),
            [&](const SharingClient* a, const SharingClient* b) { return rank(*a) < rank(*b); });
  return hungry;
}

}  // namespace sluice
