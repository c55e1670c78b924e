#include "lib/sharing/link_divider.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "lib/scheduling/saturating_add.h"
#include "lib/sharing/share_division.h"

namespace sluice {
namespace {

// A lease is prolonged after this fraction of its time.
constexpr int kProlongShare = 4;

// Each hungry client then has a class with a demand.
void CompleteClasses(SharingClient& client) {
  std::vector<ClassReport>& classes = client.report.classes;
  classes.resize(client.class_names.size());
  const auto demands = [](const ClassReport& report) { return report.demand_bytes > 0; };
  if (std::none_of(classes.begin(), classes.end(), demands)) classes[0].demand_bytes = client.report.demand_bytes;
}

// Sets the weights of the client's classes in its own schedule. Their sum is that of the client's own weights: the
// schedule adds bytes by weight, and a larger scale would change how far its classes are ahead of each other.
void SetClassWeights(SharingClient& client, const std::vector<ClassPart>& parts) {
  if (parts.size() == 1) return;
  double own = 0;
  double sum = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    client.class_weights.push_back(static_cast<double>(std::max<int64_t>(parts[i].fair_bytes, 1)));
    own += client.report.classes[i].weight;
    sum += client.class_weights.back();
  }
  for (double& weight : client.class_weights) weight *= own / sum;
}

// A change that is worth a message.
bool WeightsChanged(const SharingClient& client) {
  constexpr double kMost = 1.125;
  const auto near = [](double a, double b) { return a <= kMost * b && b <= kMost * a; };
  return !std::equal(client.class_weights.begin(), client.class_weights.end(), client.sent_class_weights.begin(),
                     client.sent_class_weights.end(), near);
}

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

void LinkDivider::Join(TimePoint now, ClientId client, double weight, const std::vector<std::string>& classes) {
  Enter(now);
  Client& joined = clients_[client];
  joined.id = client;
  joined.weight = joined.share_weight = weight;
  joined.class_names = classes;
  if (classes.empty()) joined.class_names = {std::string(kDefaultClass)};
  IndexClasses();
}

void LinkDivider::IndexClasses() {
  std::map<std::string, size_t> indices;
  for (auto& [id, client] : clients_) {
    client.class_indices.clear();
    for (const std::string& name : client.class_names) {
      client.class_indices.push_back(indices.emplace(name, indices.size()).first->second);
    }
  }
}

void LinkDivider::Leave(TimePoint now, ClientId client, std::vector<ShareLease>& leases) {
  Enter(now);
  if (const auto found = clients_.find(client); found != clients_.end()) {
    Drain(found->second);
    clients_.erase(found);
    IndexClasses();
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
  CompleteClasses(from);
  if (report.need_bytes > 0) from.last_need_bytes = report.need_bytes;
  from.asked_at = now_ - report.oldest_block_age;
  from.alive = true;
  from.expires_at = SaturatingAdd(now_, options_.lease_time);
  Divide(leases);
  if (InGrace()) return;
  if (from.lease.sent() && now_ - from.lease.sent_at() < options_.lease_time / kProlongShare) return;
  leases.push_back(Send(from));
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
  for (ClassReport& of : client.report.classes) of.demand_bytes = 0;
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
    const bool news = !client.lease.sent() || WeightsChanged(client);
    if (client.lease.changed() || (client.alive && news)) leases.push_back(Send(client));
  }
}

ShareLease LinkDivider::Send(Client& client) const {
  client.sent_class_weights = client.class_weights;
  ShareLease lease = client.lease.Send(now_, client.id);
  lease.class_weights = client.class_weights;
  return lease;
}

// Returns the parts of hungry clients.
std::vector<std::vector<ClassPart>> LinkDivider::PartsOf(const std::vector<Client*>& clients, bool boosted) const {
  std::vector<ClientClaim> claims;
  for (const Client* client : clients) {
    ClientClaim& claim = claims.emplace_back(ClientClaim{.weight = client->weight});
    if (boosted) claim.boost = turns_.Boost(*client);
    for (size_t i = 0; i < client->class_indices.size(); ++i) {
      const ClassReport& report = client->report.classes[i];
      claim.classes.push_back({client->class_indices[i], report.weight, report.demand_bytes});
    }
  }
  return DivideByClass(options_.budget_bytes, claims);
}

// Returns whether hungry clients have traffic in several classes. Otherwise only the weights of the clients count.
bool LinkDivider::SharesByClass() const {
  if (options_.mode == SharingMode::kFifo) return false;
  std::optional<size_t> first;
  for (const auto& [id, client] : clients_) {
    for (size_t i = 0; client.hungry() && i < client.class_indices.size(); ++i) {
      if (client.report.classes[i].demand_bytes == 0) continue;
      if (first.value_or(client.class_indices[i]) != client.class_indices[i]) return true;
      first = client.class_indices[i];
    }
  }
  return false;
}

// A client with traffic in one class counts by its weight, like a client without classes. If it has traffic in several
// classes, a class with a small demand counts by its demand: the others of the client must not use its part.
void LinkDivider::SetShareWeights() {
  std::vector<Client*> hungry;
  double weights = 0;
  for (auto& [id, client] : clients_) {
    client.share_weight = client.weight;
    client.class_weights.clear();
    if (!client.hungry()) continue;
    hungry.push_back(&client);
    weights += client.weight;
  }
  if (!SharesByClass()) return;
  const std::vector<std::vector<ClassPart>> parts = PartsOf(hungry, false);
  double sum = 0;
  for (size_t i = 0; i < hungry.size(); ++i) {
    Client& client = *hungry[i];
    int64_t bytes = 0;
    int64_t only_bytes = 0;
    int busy_classes = 0;
    for (const ClassPart& part : parts[i]) {
      bytes += part.bytes;
      if (part.bytes == 0) continue;
      ++busy_classes;
      only_bytes = part.EntitledBytes();
    }
    if (busy_classes == 1) bytes = only_bytes;
    SetClassWeights(client, parts[i]);
    client.share_weight = static_cast<double>(std::max<int64_t>(bytes, 1));
    sum += client.share_weight;
  }
  for (Client* client : hungry) client->share_weight *= weights / sum;
}

void LinkDivider::SetShares() {
  SetShareWeights();
  double weights = 0;
  for (const auto& [id, client] : clients_) weights += client.hungry() ? client.share_weight : 0;
  for (auto& [id, client] : clients_) {
    const double all = client.hungry() ? weights : weights + client.share_weight;
    const double part = options_.mode == SharingMode::kFifo ? 1 : client.share_weight / all;
    client.share_bytes = static_cast<int64_t>(part * static_cast<double>(options_.budget_bytes));
  }
}

// Sets the targets of served clients first. Idle clients keep their leases, so that a client that pauses need not
// request again.
void LinkDivider::SetTargets(const std::vector<Client*>& served) {
  for (auto& [id, client] : clients_) client.target_bytes = 0;
  const std::vector<double> weights = TargetWeights(served);
  std::vector<ShareClaim> claims;
  for (size_t i = 0; i < served.size(); ++i) {
    const int64_t wanted = std::min(served[i]->report.demand_bytes, options_.budget_bytes);
    claims.push_back({weights[i], served[i]->floor_bytes, std::max(wanted, served[i]->floor_bytes)});
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
  double all_weights = 0;
  for (const Client* client : all) all_weights += client->share_weight;
  for (Client* client : all) {
    client->target_bytes += static_cast<int64_t>(static_cast<double>(left_bytes) * client->share_weight / all_weights);
  }
}

std::vector<double> LinkDivider::TargetWeights(const std::vector<Client*>& served) const {
  std::vector<double> weights;
  if (!SharesByClass()) {
    for (const Client* client : served) weights.push_back(client->weight * turns_.Boost(*client));
    return weights;
  }
  for (const std::vector<ClassPart>& parts : PartsOf(served, true)) {
    int64_t bytes = 0;
    for (const ClassPart& part : parts) bytes += part.bytes;
    weights.push_back(static_cast<double>(std::max<int64_t>(bytes, 1)));
  }
  return weights;
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
  bool grown = false;
  for (Client* client : served) grown |= GrowOne(*client, free_bytes);
  for (auto& [id, client] : clients_) {
    if (client.alive && !client.hungry()) grown |= GrowOne(client, free_bytes);
  }
  SLUICE_HOLDS(breaches_, !grown || entitled_bytes() <= options_.budget_bytes);
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
