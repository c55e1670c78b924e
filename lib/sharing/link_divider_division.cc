#include <algorithm>
#include <cassert>
#include <cmath>
#include <tuple>

#include "lib/scheduling/saturating_add.h"
#include "lib/sharing/link_divider.h"
#include "lib/sharing/share_division.h"

// The division of the budget by LinkDivider: the turns of clients, their targets, and the leases to send now.
namespace sluice {
namespace {

// A turn lasts for this number of budgets of received bytes: some milliseconds on any link whose buffer drains in some
// milliseconds.
constexpr int64_t kTurnBudgets = 2;

// A client that has received nothing for this time is unlikely to receive bytes soon. The time is long enough for some
// reports.
constexpr int64_t kStallDrainTimes = 4;
constexpr std::chrono::nanoseconds kMinStallTime = std::chrono::milliseconds(10);

constexpr size_t kMaxPromises = 16;  // unacknowledged promises to one client

}  // namespace

void LinkDivider::Divide(std::vector<ShareLease>& leases) {
  if (InGrace()) return;
  SetShares();
  EndStalledTurns();
  const std::vector<Client*> served = TakeTurns(HungryInOrder());
  SetTargets(served);
  Shrink(served);
  Grow(served);
  SetSafeShares();
  for (auto& [id, client] : clients_) {
    if (client.changed || (client.alive && !client.told)) Tell(client, leases);
  }
}

void LinkDivider::SetShares() {
  double weights = 0;
  for (const auto& [id, client] : clients_) weights += client.hungry() ? client.weight : 0;
  for (auto& [id, client] : clients_) {
    const double all = client.hungry() ? weights : weights + client.weight;
    const double part = options_.mode == SharingMode::kFifo ? 1 : client.weight / all;
    client.share_bytes = static_cast<int64_t>(part * static_cast<double>(options_.budget_bytes));
  }
}

bool LinkDivider::HasTurn(const Client& client) const {
  if (!client.in_turn) return false;
  if (options_.mode == SharingMode::kFifo) return client.turn_block == client.report.oldest_block;
  return client.turn_bytes < TurnBytes();
}

int64_t LinkDivider::TurnBytes() const {
  return kTurnBudgets * options_.budget_bytes;
}

TimePoint LinkDivider::StallsAt() const {
  return SaturatingAdd(now_, std::max<std::chrono::nanoseconds>(kStallDrainTimes * options_.drain_time, kMinStallTime));
}

// In fifo a block has the link until it ends. A client that waits only for its workers delays no other client.
bool LinkDivider::MayStall(const Client& client) const {
  return client.in_turn && client.needy() && options_.mode != SharingMode::kFifo;
}

// The link was idle for the waiting clients, so their earlier debts are cancelled: they are next. The turn costs the
// bytes that it could have brought; otherwise its owner would be first again.
void LinkDivider::EndStalledTurns() {
  if (!SomebodyWaits()) return;
  for (auto& [id, stalled] : clients_) {
    if (!MayStall(stalled) || now_ < stalled.stalls_at) continue;
    stalled.turn_bytes = TurnBytes();
    stalled.stalls_at = StallsAt();
    stalled.credit_bytes = std::min(stalled.credit_bytes, -static_cast<double>(TurnBytes()));
    for (auto& [other, client] : clients_) {
      if (client.waits) client.credit_bytes = std::max(client.credit_bytes, 0.0);
    }
  }
}

// Sorts clients in a current turn first. The other clients follow by the time of their block in fifo, otherwise by how
// far they are behind for their weight.
std::vector<LinkDivider::Client*> LinkDivider::HungryInOrder() {
  const auto rank = [this](const Client& client) {
    const bool fifo = options_.mode == SharingMode::kFifo;
    const double behind = fifo ? 0 : client.credit_bytes / client.weight;
    return std::make_tuple(!HasTurn(client), fifo ? client.asked_at : TimePoint(), -behind, client.id);
  };
  std::vector<Client*> hungry;
  for (auto& [id, client] : clients_) {
    if (client.hungry()) {
      hungry.push_back(&client);
    } else {
      client.in_turn = client.waits = false;
    }
  }
  std::sort(hungry.begin(), hungry.end(), [&](const Client* a, const Client* b) { return rank(*a) < rank(*b); });
  return hungry;
}

// Serves every client, in order, whose next call fits the remaining budget. A client whose share is below that cost
// receives more than its share. It therefore rests while it is ahead and another client can use the link now. The first
// client is always served.
std::vector<LinkDivider::Client*> LinkDivider::TakeTurns(const std::vector<Client*>& hungry) {
  const bool fifo = options_.mode == SharingMode::kFifo;
  std::vector<Client*> served;
  bool serves_needy = false;
  int64_t left_bytes = options_.budget_bytes;
  for (Client* client : hungry) {
    client->floor_bytes = std::clamp<int64_t>(client->report.need_bytes, 1, options_.budget_bytes);
    const bool ahead = client->floor_bytes > client->share_bytes && client->credit_bytes < 0 && !HasTurn(*client);
    const bool has_to_wait = client->floor_bytes > left_bytes || fifo || (ahead && serves_needy);
    client->waits = false;
    if (has_to_wait && !served.empty()) {
      client->in_turn = false;
      client->waits = client->needy();
      continue;
    }
    left_bytes -= client->floor_bytes;
    served.push_back(client);
    serves_needy |= client->needy();
    if (fifo ? HasTurn(*client) : client->in_turn) continue;
    client->in_turn = true;
    client->turn_bytes = 0;
    client->stalls_at = StallsAt();
    client->turn_block = client->report.oldest_block;
  }
  return served;
}

// A client that is behind counts for more, up to twice its weight; a client that is ahead counts for less.
double LinkDivider::EffectiveWeight(const Client& client) const {
  if (options_.mode == SharingMode::kFifo) return client.weight;
  return client.weight * std::exp2(client.credit_bytes / (kCreditBudgets * static_cast<double>(options_.budget_bytes)));
}

// Sets the targets of served clients first. Idle clients keep their leases, so that a client that pauses need not
// request again.
void LinkDivider::SetTargets(const std::vector<Client*>& served) {
  for (auto& [id, client] : clients_) client.target_bytes = 0;
  std::vector<ShareClaim> claims;
  for (const Client* client : served) {
    const int64_t wanted = std::min(client->report.demand_bytes, options_.budget_bytes);
    claims.push_back({EffectiveWeight(*client), client->floor_bytes, std::max(wanted, client->floor_bytes)});
  }
  const std::vector<int64_t> shares = DivideByWeight(options_.budget_bytes, claims);
  int64_t left_bytes = options_.budget_bytes;
  for (size_t i = 0; i < served.size(); ++i) left_bytes -= served[i]->target_bytes = shares[i];

  std::vector<Client*> idle;
  int64_t held_bytes = 0;
  for (auto& [id, client] : clients_) {
    if (!client.alive || client.hungry()) continue;
    idle.push_back(&client);
    held_bytes += client.lease_bytes;
  }
  const double kept = held_bytes > left_bytes ? static_cast<double>(left_bytes) / static_cast<double>(held_bytes) : 1;
  for (Client* client : idle) {
    const auto bytes = static_cast<int64_t>(kept * static_cast<double>(client->lease_bytes));
    // With less the client could not make its probable next call.
    if (bytes < std::max(options_.frame_bytes, client->last_need_bytes)) continue;
    client->target_bytes = bytes;
    left_bytes -= bytes;
  }
  Spread(left_bytes, served.empty() ? idle : served);
}

// Spreads the unused bytes, because clients may need them before the next report.
void LinkDivider::Spread(int64_t bytes, const std::vector<Client*>& clients) {
  double weights = 0;
  for (const Client* client : clients) weights += client->weight;
  for (Client* client : clients) {
    client->target_bytes += static_cast<int64_t>(static_cast<double>(bytes) * client->weight / weights);
  }
}

bool LinkDivider::WorthTelling(int64_t before_bytes, int64_t bytes) const {
  // A lease of 0 or of the whole budget has a special meaning: a client with the whole budget may exceed it.
  if (before_bytes == 0 || bytes == 0 || bytes == options_.budget_bytes) return before_bytes != bytes;
  return std::abs(bytes - before_bytes) >= options_.frame_bytes;
}

// Shrinks leases to the byte if a served client waits for bytes.
void LinkDivider::Shrink(const std::vector<Client*>& served) {
  const bool wanted =
      std::any_of(served.begin(), served.end(), [](const Client* c) { return c->lease_bytes < c->floor_bytes; });
  for (auto& [id, client] : clients_) {
    if (client.target_bytes >= client.lease_bytes) continue;
    if (wanted || WorthTelling(client.lease_bytes, client.target_bytes)) {
      Change(client, client.target_bytes, client.safe_bytes);
    }
  }
}

// Grows leases from free bytes, in order: bytes that the first client still lacks are not given to the next.
void LinkDivider::Grow(const std::vector<Client*>& served) {
  // Below 0 if an expired client returns and reports bytes in flight that were given to others since.
  int64_t free_bytes = options_.budget_bytes - entitled_bytes();
  [[maybe_unused]] bool grown = false;
  for (Client* client : served) grown |= GrowOne(*client, free_bytes);
  for (auto& [id, client] : clients_) {
    if (client.alive && !client.hungry()) grown |= GrowOne(client, free_bytes);
  }
  assert(!grown || entitled_bytes() <= options_.budget_bytes);
}

bool LinkDivider::GrowOne(Client& client, int64_t& free_bytes) {
  if (client.target_bytes <= client.lease_bytes) return false;
  // Bytes that the client is entitled to already cost nothing.
  const int64_t entitled_bytes = client.EntitledBytes();
  const int64_t floor_bytes = client.hungry() ? client.floor_bytes : 0;
  const int64_t bytes = std::min(client.target_bytes, entitled_bytes + free_bytes);
  if (bytes < floor_bytes) {
    free_bytes = std::min<int64_t>(free_bytes, 0);
    return false;
  }
  const bool lacks = client.lease_bytes < floor_bytes;
  if (bytes <= client.lease_bytes || (!lacks && !WorthTelling(client.lease_bytes, bytes))) return false;
  free_bytes -= std::max<int64_t>(bytes - entitled_bytes, 0);
  Change(client, bytes, client.safe_bytes);
  return bytes > entitled_bytes;
}

// Divides the budget by weight among all clients, busy or not. As with leases, bytes that a client gives up go to
// others only after it acknowledges.
void LinkDivider::SetSafeShares() {
  double weights = 0;
  int64_t entitled_bytes = 0;
  for (const auto& [id, client] : clients_) {
    weights += client.alive ? client.weight : 0;
    entitled_bytes += client.EntitledSafeBytes();
  }
  for (auto& [id, client] : clients_) {
    if (!client.alive) continue;
    const auto fair = static_cast<int64_t>(static_cast<double>(options_.budget_bytes) * client.weight / weights);
    const int64_t own_bytes = client.EntitledSafeBytes();
    const int64_t free_bytes = std::max<int64_t>(options_.budget_bytes - entitled_bytes, 0);
    const int64_t bytes = std::min(fair, own_bytes + free_bytes);
    if (bytes == client.safe_bytes || (bytes > client.safe_bytes && !WorthTelling(client.safe_bytes, bytes))) continue;
    Change(client, client.lease_bytes, bytes);
    entitled_bytes += client.EntitledSafeBytes() - own_bytes;
  }
}

// Merges the oldest promises of a client that does not acknowledge: it may still use the largest of them, so only the
// maximum is needed.
void LinkDivider::ForgetOldPromises(std::vector<Promise>& promises) {
  if (promises.size() <= kMaxPromises) return;
  promises[1].bytes = std::max(promises[0].bytes, promises[1].bytes);
  promises[1].safe_bytes = std::max(promises[0].safe_bytes, promises[1].safe_bytes);
  promises.erase(promises.begin());
}

// Combines several changes of one event into one lease.
void LinkDivider::Change(Client& client, int64_t lease_bytes, int64_t safe_bytes) {
  if (!client.changed) {
    client.changed = true;
    client.unacknowledged.push_back({++client.lease_id, lease_bytes, safe_bytes});
    ForgetOldPromises(client.unacknowledged);
  }
  client.unacknowledged.back().bytes = lease_bytes;
  client.unacknowledged.back().safe_bytes = safe_bytes;
  if (lease_bytes != client.lease_bytes) ++client.lease_changes;
  client.lease_bytes = lease_bytes;
  client.safe_bytes = safe_bytes;
}

void LinkDivider::Tell(Client& client, std::vector<ShareLease>& leases) {
  client.changed = false;
  client.told = true;
  client.told_at = now_;
  leases.push_back(
      {.client = client.id, .id = client.lease_id, .bytes = client.lease_bytes, .safe_bytes = client.safe_bytes});
}

}  // namespace sluice
