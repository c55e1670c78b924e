#include "lib/sharing/link_divider.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "lib/scheduling/saturating_add.h"
#include "lib/sharing/share_division.h"

namespace sluice {
namespace {

// A lease is prolonged after this fraction of its time.
constexpr int kProlongShare = 4;

}  // namespace

absl::Status LinkDivider::Validate(const Options& options) {
  const auto check = [](std::string_view field, int64_t value, int64_t least) {
    if (value >= least) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(std::string(field), ": ", value, " is below ", least));
  };
  absl::Status status = check("budget_bytes", options.budget_bytes, 1);
  status.Update(check("frame_bytes", options.frame_bytes, 1));
  status.Update(check("lease_time (ns)", options.lease_time.count(), 1));
  status.Update(check("drain_time (ns)", options.drain_time.count(), 0));
  status.Update(check("start_grace (ns)", options.start_grace.count(), 0));
  return status;
}

LinkDivider::LinkDivider(const Options& options, TimePoint now)
    : options_(options),
      started_at_(now),
      now_(now),
      turns_(clients_, options.mode, options.budget_bytes, options.drain_time) {}

int64_t LinkDivider::draining_bytes() const {
  int64_t bytes = 0;
  for (const Draining& draining : draining_) bytes += draining.bytes;
  return bytes;
}

int64_t LinkDivider::entitled_bytes() const {
  int64_t bytes = draining_bytes();
  for (const auto& [id, client] : clients_) bytes += client.EntitledBytes();
  return bytes;
}

LinkDivider::ClientState LinkDivider::State(ClientId client) const {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return {};
  const Client& known = found->second;
  return {.expired = known.expirations > 0 && !known.alive,
          .lease_bytes = known.lease.bytes(),
          .report = known.report,
          .lease_changes = known.lease.changes(),
          .expirations = known.expirations};
}

void LinkDivider::Join(TimePoint now, ClientId client, double weight) {
  Enter(now);
  Client& joined = clients_[client];
  joined.id = client;
  joined.weight = weight;
}

void LinkDivider::Leave(TimePoint now, ClientId client, std::vector<ShareLease>& leases) {
  Enter(now);
  if (const auto found = clients_.find(client); found != clients_.end()) {
    Drain(found->second);
    clients_.erase(found);
  }
  Divide(leases);
}

void LinkDivider::Report(TimePoint now, ClientId client, const ShareReport& report, std::vector<ShareLease>& leases) {
  Enter(now);
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  Client& from = found->second;
  from.lease.Acknowledge(report.acknowledged);
  if (from.alive) turns_.OnReceived(now_, from, report.received_bytes - from.report.received_bytes);
  from.report = report;
  if (report.need_bytes > 0) from.last_need_bytes = report.need_bytes;
  from.asked_at = now_ - report.oldest_block_age;
  from.alive = true;
  from.expires_at = SaturatingAdd(now_, options_.lease_time);
  Divide(leases);
  if (InGrace()) return;
  if (from.lease.sent() && now_ - from.lease.sent_at() < options_.lease_time / kProlongShare) return;
  leases.push_back(from.lease.Send(now_, client));
}

void LinkDivider::SetBudget(TimePoint now, int64_t budget_bytes, std::vector<ShareLease>& leases) {
  Enter(now);
  options_.budget_bytes = budget_bytes;
  turns_.SetBudget(budget_bytes);
  Divide(leases);
}

void LinkDivider::OnTimer(TimePoint now, std::vector<ShareLease>& leases) {
  Enter(now);
  Divide(leases);
}

TimePoint LinkDivider::NextTimer() const {
  TimePoint next = draining_.empty() ? TimePoint::max() : draining_.front().until;
  if (InGrace()) next = std::min(next, started_at_ + options_.start_grace);
  for (const auto& [id, client] : clients_) {
    if (client.alive) next = std::min(next, client.expires_at);
  }
  return std::min(next, turns_.NextStall());
}

void LinkDivider::Enter(TimePoint now) {
  now_ = std::max(now_, now);
  while (!draining_.empty() && draining_.front().until <= now_) draining_.pop_front();
  for (auto& [id, client] : clients_) {
    if (client.alive && client.expires_at <= now_) Expire(client);
  }
}

// The client no longer uses its lease, and its bytes on the way arrive. If it returns, it reports its bytes in flight.
void LinkDivider::Expire(Client& client) {
  Drain(client);
  client.alive = false;
  client.report.limit_bytes = client.report.demand_bytes = client.report.in_flight_bytes = 0;
  client.lease.Expire();
  client.in_turn = client.waits = false;
  ++client.expirations;
}

void LinkDivider::Drain(const Client& client) {
  const int64_t bytes = client.EntitledBytes();
  if (bytes > 0) draining_.push_back({SaturatingAdd(now_, options_.drain_time), bytes});
}

void LinkDivider::Divide(std::vector<ShareLease>& leases) {
  if (InGrace()) return;
  SetShares();
  const std::vector<Client*> served = turns_.Serve(now_);
  SetTargets(served);
  Shrink(served);
  Grow(served);
  SetSafeShares();
  for (auto& [id, client] : clients_) {
    if (client.lease.changed() || (client.alive && !client.lease.sent())) leases.push_back(client.lease.Send(now_, id));
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

// Sets the targets of served clients first. Idle clients keep their leases, so that a client that pauses need not
// request again.
void LinkDivider::SetTargets(const std::vector<Client*>& served) {
  for (auto& [id, client] : clients_) client.target_bytes = 0;
  std::vector<ShareClaim> claims;
  for (const Client* client : served) {
    const int64_t wanted = std::min(client->report.demand_bytes, options_.budget_bytes);
    claims.push_back({turns_.EffectiveWeight(*client), client->floor_bytes, std::max(wanted, client->floor_bytes)});
  }
  const std::vector<int64_t> shares = DivideByWeight(options_.budget_bytes, claims);
  int64_t left_bytes = options_.budget_bytes;
  for (size_t i = 0; i < served.size(); ++i) left_bytes -= served[i]->target_bytes = shares[i];

  std::vector<Client*> idle;
  int64_t held_bytes = 0;
  for (auto& [id, client] : clients_) {
    if (!client.alive || client.hungry()) continue;
    idle.push_back(&client);
    held_bytes += client.lease.bytes();
  }
  const double kept = held_bytes > left_bytes ? static_cast<double>(left_bytes) / static_cast<double>(held_bytes) : 1;
  for (Client* client : idle) {
    const auto bytes = static_cast<int64_t>(kept * static_cast<double>(client->lease.bytes()));
    // With less the client could not make its probable next call.
    if (bytes < std::max(options_.frame_bytes, client->last_need_bytes)) continue;
    client->target_bytes = bytes;
    left_bytes -= bytes;
  }
  // Spread the unused bytes, because clients may need them before the next report.
  const std::vector<Client*>& all = served.empty() ? idle : served;
  double weights = 0;
  for (const Client* client : all) weights += client->weight;
  for (Client* client : all) {
    client->target_bytes += static_cast<int64_t>(static_cast<double>(left_bytes) * client->weight / weights);
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
      std::any_of(served.begin(), served.end(), [](const Client* c) { return c->lease.bytes() < c->floor_bytes; });
  for (auto& [id, client] : clients_) {
    if (client.target_bytes >= client.lease.bytes()) continue;
    if (wanted || WorthTelling(client.lease.bytes(), client.target_bytes)) {
      client.lease.SetBytes(client.target_bytes);
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
  if (client.target_bytes <= client.lease.bytes()) return false;
  // Bytes that the client is entitled to already cost nothing.
  const int64_t entitled_bytes = client.EntitledBytes();
  const int64_t floor_bytes = client.hungry() ? client.floor_bytes : 0;
  const int64_t bytes = std::min(client.target_bytes, entitled_bytes + free_bytes);
  if (bytes < floor_bytes) {
    free_bytes = std::min<int64_t>(free_bytes, 0);
    return false;
  }
  const bool lacks = client.lease.bytes() < floor_bytes;
  if (bytes <= client.lease.bytes() || (!lacks && !WorthTelling(client.lease.bytes(), bytes))) return false;
  free_bytes -= std::max<int64_t>(bytes - entitled_bytes, 0);
  client.lease.SetBytes(bytes);
  return bytes > entitled_bytes;
}

// Divides the budget by weight among all clients, busy or not. As with leases, bytes that a client gives up go to
// others only after it acknowledges.
void LinkDivider::SetSafeShares() {
  double weights = 0;
  int64_t entitled_bytes = 0;
  for (const auto& [id, client] : clients_) {
    weights += client.alive ? client.weight : 0;
    entitled_bytes += client.lease.MostSafeBytes();
  }
  for (auto& [id, client] : clients_) {
    if (!client.alive) continue;
    const auto fair = static_cast<int64_t>(static_cast<double>(options_.budget_bytes) * client.weight / weights);
    const int64_t own_bytes = client.lease.MostSafeBytes();
    const int64_t free_bytes = std::max<int64_t>(options_.budget_bytes - entitled_bytes, 0);
    const int64_t bytes = std::min(fair, own_bytes + free_bytes);
    if (bytes == client.lease.safe_bytes() ||
        (bytes > client.lease.safe_bytes() && !WorthTelling(client.lease.safe_bytes(), bytes)))
      continue;
    client.lease.SetSafeBytes(bytes);
    entitled_bytes += client.lease.MostSafeBytes() - own_bytes;
  }
}

}  // namespace sluice
