#include "lib/sharing/link_divider.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

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
  status.Update(check("division_pause (ns)", options.division_pause.count(), 0));
  return status;
}

LinkDivider::LinkDivider(const Options& options, TimePoint now)
    : options_(options),
      started_at_(now),
      now_(now),
      turns_(all_, options.mode, options.budget_bytes, options.drain_time) {}

int64_t LinkDivider::draining_bytes() const {
  int64_t bytes = 0;
  for (const Draining& draining : draining_) bytes += draining.bytes;
  return bytes;
}

int64_t LinkDivider::entitled_bytes() const {
  int64_t bytes = draining_bytes();
  for (const Client* client : all_) bytes += client->EntitledBytes();
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
  joined.claim.weight = weight;
  for (const std::string& name : joined.class_names) joined.claim.classes.push_back({class_names_.Take(name)});
  all_.clear();
  for (auto& [id, each] : clients_) all_.push_back(&each);
}

// Takes the reported classes of a hungry client into the division by class.
void LinkDivider::Claim(Client& client) {
  Unclaim(client);
  if (!client.hungry()) return;
  for (size_t i = 0; i < client.claim.classes.size(); ++i) {
    client.claim.classes[i].weight = client.report.classes[i].weight;
    client.claim.classes[i].demand_bytes = client.report.classes[i].demand_bytes;
  }
  classes_.Add(client.claim);
  client.claims = true;
}

void LinkDivider::Unclaim(Client& client) {
  if (std::exchange(client.claims, false)) classes_.Remove(client.claim);
}

void LinkDivider::Leave(TimePoint now, ClientId client, std::vector<ShareLease>& leases) {
  Enter(now);
  if (const auto found = clients_.find(client); found != clients_.end()) {
    Drain(found->second);
    Unclaim(found->second);
    for (const std::string& name : found->second.class_names) class_names_.Drop(name);
    all_.erase(std::find(all_.begin(), all_.end(), &found->second));
    clients_.erase(found);
  }
  DivideSoon(leases);
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
  from.alive = from.reported = true;
  from.expires_at = SaturatingAdd(now_, options_.lease_time);
  Claim(from);
  DivideSoon(leases);
  // A client without a lease gets one with the division.
  if (InGrace() || !from.lease.sent() || now_ - from.lease.sent_at() < options_.lease_time / kProlongShare) return;
  leases.push_back(Send(from));
}

void LinkDivider::SetBudget(TimePoint now, int64_t budget_bytes, std::vector<ShareLease>& leases) {
  Enter(now);
  options_.budget_bytes = budget_bytes;
  turns_.SetBudget(budget_bytes);
  DivideSoon(leases);
}

void LinkDivider::OnTimer(TimePoint now, std::vector<ShareLease>& leases) {
  Enter(now);
  DivideSoon(leases);
}

TimePoint LinkDivider::NextTimer() const {
  TimePoint next = draining_.empty() ? TimePoint::max() : draining_.front().until;
  if (InGrace()) next = std::min(next, started_at_ + options_.start_grace);
  if (awaits_division_) next = std::min(next, MayDivideAt());
  return std::min(next, wakes_at_);
}

void LinkDivider::Enter(TimePoint now) {
  now_ = std::max(now_, now);
  while (!draining_.empty() && draining_.front().until <= now_) {
    draining_.pop_front();
    awaits_division_ = true;
  }
  if (now_ < wakes_at_) return;
  wakes_at_ = TimePoint::max();
  awaits_division_ = true;
  for (Client* client : all_) {
    if (client->alive && client->expires_at <= now_) Expire(*client);
  }
}

// The client no longer uses its lease, and its bytes on the way arrive. If it returns, it reports its bytes in flight.
void LinkDivider::Expire(Client& client) {
  Drain(client);
  client.alive = false;
  client.report.limit_bytes = client.report.demand_bytes = client.report.in_flight_bytes = 0;
  for (ClassReport& of : client.report.classes) of.demand_bytes = 0;
  Unclaim(client);
  client.lease.Expire();
  client.in_turn = client.waits = false;
  ++client.expirations;
  ++expirations_;
}

void LinkDivider::Drain(const Client& client) {
  const int64_t bytes = client.EntitledBytes();
  if (bytes > 0) draining_.push_back({SaturatingAdd(now_, options_.drain_time), bytes});
}

TimePoint LinkDivider::MayDivideAt() const {
  if (divided_at_ == TimePoint::min()) return now_;
  const auto clients = std::ssize(all_);
  const bool many = clients > 0 && options_.division_pause >= kMaxDivisionPause / clients;
  return divided_at_ + (many ? kMaxDivisionPause : clients * options_.division_pause);
}

void LinkDivider::DivideSoon(std::vector<ShareLease>& leases) {
  awaits_division_ = true;
  if (now_ >= MayDivideAt()) Divide(leases);
}

void LinkDivider::Divide(std::vector<ShareLease>& leases) {
  divided_at_ = now_;
  awaits_division_ = false;
  if (!InGrace()) {
    SetShares();
    const std::vector<Client*> served = turns_.Serve(now_);
    SetTargets(served);
    Shrink(served);
    Grow(served);
    SetSafeShares();
  }
  wakes_at_ = turns_.NextStall();
  for (Client* client : all_) {
    if (client->alive) wakes_at_ = std::min(wakes_at_, client->expires_at);
    if (InGrace()) continue;
    const bool news = !client->lease.sent() || client->weights_changed;
    if (client->lease.changed() || (client->alive && news)) leases.push_back(Send(*client));
  }
}

ShareLease LinkDivider::Send(Client& client) const {
  client.sent_class_weights = client.class_weights;
  client.weights_changed = false;
  ShareLease lease = client.lease.Send(now_, client.id);
  lease.class_weights = client.class_weights;
  return lease;
}

// If hungry clients have traffic in several classes, they share by class. Otherwise only the weights of the clients
// count.
void LinkDivider::SetShareWeights() {
  const bool all = classes_.Divide(options_.budget_bytes);
  const bool by_class = options_.mode == SharingMode::kWeighted && classes_.busy_classes() > 1;
  double weights = 0;
  double sum = 0;
  for (Client* client : all_) {
    const bool reported = std::exchange(client->reported, false);
    client->share_weight = client->weight;
    if (by_class && client->hungry()) {
      if (all || reported) SetClassShare(*client);
      weights += client->weight;
      sum += static_cast<double>(client->class_bytes);
    } else {
      client->class_weights.clear();
      client->weights_changed = !client->sent_class_weights.empty();
    }
  }
  if (!by_class) return;
  for (Client* client : all_) {
    if (client->hungry()) client->share_weight = static_cast<double>(client->class_bytes) * weights / sum;
  }
}

// Sets what the client has of the classes, and the weights of its classes in its own schedule. A client with traffic in
// one class counts by its weight, like a client without classes. If it has traffic in several classes, a class with a
// small demand counts by its demand: the others of the client must not use its part. The sum of the weights is that of
// the client's own: the schedule adds bytes by weight, and a larger scale would change how far its classes are ahead of
// each other.
void LinkDivider::SetClassShare(Client& client) {
  client.class_weights.clear();
  int64_t bytes = 0;
  int64_t only_bytes = 0;
  int busy_classes = 0;
  double own = 0;
  double sum = 0;
  for (const ClassClaim& claim : client.claim.classes) {
    const ClassPart part = classes_.PartOf(client.claim, claim);
    client.class_weights.push_back(static_cast<double>(std::max<int64_t>(part.fair_bytes, 1)));
    own += claim.weight;
    sum += client.class_weights.back();
    bytes += part.bytes;
    if (part.bytes == 0) continue;
    ++busy_classes;
    only_bytes = part.EntitledBytes();
  }
  client.class_bytes = std::max<int64_t>(busy_classes == 1 ? only_bytes : bytes, 1);
  for (double& weight : client.class_weights) weight *= own / sum;
  if (client.class_weights.size() == 1) client.class_weights.clear();
  client.weights_changed = WeightsChanged(client);
}

void LinkDivider::SetShares() {
  SetShareWeights();
  double weights = 0;
  for (const Client* client : all_) weights += client->hungry() ? client->share_weight : 0;
  for (Client* client : all_) {
    const double all = client->hungry() ? weights : weights + client->share_weight;
    const double part = options_.mode == SharingMode::kFifo ? 1 : client->share_weight / all;
    client->share_bytes = static_cast<int64_t>(part * static_cast<double>(options_.budget_bytes));
  }
}

// Sets the targets of served clients first. Idle clients keep their leases, so that a client that pauses need not
// request again.
void LinkDivider::SetTargets(const std::vector<Client*>& served) {
  for (Client* client : all_) client->target_bytes = 0;
  std::vector<ShareClaim> claims;
  claims.reserve(served.size());
  for (const Client* client : served) {
    const int64_t wanted = std::min(client->report.demand_bytes, options_.budget_bytes);
    claims.push_back({.weight = client->share_weight * turns_.Boost(*client),
                      .floor_bytes = client->floor_bytes,
                      .cap_bytes = std::max(wanted, client->floor_bytes)});
  }
  const std::vector<int64_t> shares = DivideByWeight(options_.budget_bytes, claims);
  int64_t left_bytes = options_.budget_bytes;
  for (size_t i = 0; i < served.size(); ++i) left_bytes -= served[i]->target_bytes = shares[i];

  std::vector<Client*> idle;
  int64_t held_bytes = 0;
  for (Client* client : all_) {
    if (!client->alive || client->hungry()) continue;
    idle.push_back(client);
    held_bytes += client->lease.bytes();
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

bool LinkDivider::WorthTelling(int64_t before_bytes, int64_t bytes) const {
  // A lease of 0 or of the whole budget has a special meaning: a client with the whole budget may exceed it.
  if (before_bytes == 0 || bytes == 0 || bytes == options_.budget_bytes) return before_bytes != bytes;
  return std::abs(bytes - before_bytes) >= options_.frame_bytes;
}

// Shrinks leases to the byte if a served client waits for bytes.
void LinkDivider::Shrink(const std::vector<Client*>& served) {
  const bool wanted =
      std::any_of(served.begin(), served.end(), [](const Client* c) { return c->lease.bytes() < c->floor_bytes; });
  for (Client* client : all_) {
    if (client->target_bytes >= client->lease.bytes()) continue;
    if (wanted || WorthTelling(client->lease.bytes(), client->target_bytes)) {
      client->lease.SetBytes(client->target_bytes);
    }
  }
}

// Grows leases from free bytes, in order: bytes that the first client still lacks are not given to the next.
void LinkDivider::Grow(const std::vector<Client*>& served) {
  // Below 0 if an expired client returns and reports bytes in flight that were given to others since.
  int64_t free_bytes = options_.budget_bytes - entitled_bytes();
  bool grown = false;
  for (Client* client : served) grown |= GrowOne(*client, free_bytes);
  for (Client* client : all_) {
    if (client->alive && !client->hungry()) grown |= GrowOne(*client, free_bytes);
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
  for (const Client* client : all_) {
    weights += client->alive ? client->weight : 0;
    entitled_bytes += client->lease.MostSafeBytes();
  }
  for (Client* client : all_) {
    if (!client->alive) continue;
    const auto fair = static_cast<int64_t>(static_cast<double>(options_.budget_bytes) * client->weight / weights);
    const int64_t own_bytes = client->lease.MostSafeBytes();
    const int64_t free_bytes = std::max<int64_t>(options_.budget_bytes - entitled_bytes, 0);
    const int64_t bytes = std::min(fair, own_bytes + free_bytes);
    if (bytes == client->lease.safe_bytes() ||
        (bytes > client->lease.safe_bytes() && !WorthTelling(client->lease.safe_bytes(), bytes)))
      continue;
    client->lease.SetSafeBytes(bytes);
    entitled_bytes += client->lease.MostSafeBytes() - own_bytes;
  }
}

}  // namespace sluice
