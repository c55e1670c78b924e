#include "lib/sharing/link_divider.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/scheduling/saturating_add.h"

// The events of LinkDivider. The division of the budget is in link_divider_division.cc.
namespace sluice {
namespace {

// A lease is prolonged after this fraction of its time.
constexpr int kProlongShare = 4;

}  // namespace

std::string_view SharingModeName(SharingMode mode) {
  return mode == SharingMode::kFifo ? "fifo" : "weighted";
}

absl::StatusOr<SharingMode> ParseSharingMode(std::string_view name) {
  for (const SharingMode mode : {SharingMode::kWeighted, SharingMode::kFifo}) {
    if (name == SharingModeName(mode)) return mode;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("mode: \"", std::string(name), "\" is not known; use weighted or fifo"));
}

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

LinkDivider::LinkDivider(const Options& options, TimePoint now) : options_(options), started_at_(now), now_(now) {}

// Returns the largest amount that the client may still use, because messages in both directions may be late.
int64_t LinkDivider::Client::EntitledBytes() const {
  int64_t bytes = std::max({lease_bytes, acknowledged.bytes, report.limit_bytes, report.in_flight_bytes});
  for (const Promise& promise : unacknowledged) bytes = std::max(bytes, promise.bytes);
  return bytes;
}

int64_t LinkDivider::Client::EntitledSafeBytes() const {
  int64_t bytes = std::max(safe_bytes, acknowledged.safe_bytes);
  for (const Promise& promise : unacknowledged) bytes = std::max(bytes, promise.safe_bytes);
  return bytes;
}

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
          .lease_bytes = known.lease_bytes,
          .report = known.report,
          .lease_changes = known.lease_changes,
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
  Acknowledge(from, report.acknowledged);
  if (from.alive) Account(from, report.received_bytes - from.report.received_bytes);
  from.report = report;
  if (report.need_bytes > 0) from.last_need_bytes = report.need_bytes;
  from.asked_at = now_ - report.oldest_block_age;
  from.alive = true;
  from.expires_at = SaturatingAdd(now_, options_.lease_time);
  Divide(leases);
  if (InGrace()) return;
  if (!from.told || now_ - from.told_at >= options_.lease_time / kProlongShare) Tell(from, leases);
}

void LinkDivider::SetBudget(TimePoint now, int64_t budget_bytes, std::vector<ShareLease>& leases) {
  Enter(now);
  options_.budget_bytes = budget_bytes;
  Divide(leases);
}

void LinkDivider::OnTimer(TimePoint now, std::vector<ShareLease>& leases) {
  Enter(now);
  Divide(leases);
}

TimePoint LinkDivider::NextTimer() const {
  TimePoint next = draining_.empty() ? TimePoint::max() : draining_.front().until;
  if (InGrace()) next = std::min(next, started_at_ + options_.start_grace);
  const bool somebody_waits = SomebodyWaits();
  for (const auto& [id, client] : clients_) {
    if (client.alive) next = std::min(next, client.expires_at);
    if (somebody_waits && MayStall(client)) next = std::min(next, client.stalls_at);
  }
  return next;
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
  // The client has received no other share. If no daemon divides the link, it therefore uses its safe share.
  client.safe_bytes = client.EntitledSafeBytes();
  client.acknowledged = {.safe_bytes = client.safe_bytes};
  client.unacknowledged.clear();
  client.lease_bytes = 0;
  client.in_turn = client.waits = false;
  client.told = false;
  ++client.lease_id;
  ++client.lease_changes;
  ++client.expirations;
}

void LinkDivider::Drain(const Client& client) {
  const int64_t bytes = client.EntitledBytes();
  if (bytes > 0) draining_.push_back({SaturatingAdd(now_, options_.drain_time), bytes});
}

void LinkDivider::Acknowledge(Client& client, uint64_t id) {
  std::vector<Promise>& promises = client.unacknowledged;
  while (!promises.empty() && promises.front().id <= id) {
    client.acknowledged = promises.front();
    promises.erase(promises.begin());
  }
}

bool LinkDivider::SomebodyWaits() const {
  return std::any_of(clients_.begin(), clients_.end(), [](const auto& client) { return client.second.waits; });
}

// Returns whether a client is owed credit. It is not if it demands less than its share, or waits only for its workers,
// unless it waits for its turn.
bool LinkDivider::Contends(const Client& client) const {
  return client.waits || (client.needy() && client.report.demand_bytes >= client.share_bytes);
}

// Credits received bytes, by weight, to the clients that contend for the link.
void LinkDivider::Account(Client& from, int64_t received_bytes) {
  if (received_bytes <= 0) return;
  from.turn_bytes += received_bytes;
  from.stalls_at = StallsAt();
  const bool counts = Contends(from) || SomebodyWaits();  // even a small demand takes bytes from waiting clients
  if (!counts) return;
  const auto contends = [&](const Client& client) { return &client == &from || Contends(client); };
  double weights = 0;
  for (const auto& [id, client] : clients_) weights += contends(client) ? client.weight : 0;
  const double most = kCreditBudgets * static_cast<double>(options_.budget_bytes);
  for (auto& [id, client] : clients_) {
    if (!contends(client)) continue;
    double credit = client.credit_bytes + static_cast<double>(received_bytes) * client.weight / weights;
    if (&client == &from) credit -= static_cast<double>(received_bytes);
    client.credit_bytes = std::clamp(credit, -most, most);
  }
}

}  // namespace sluice
