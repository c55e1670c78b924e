#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "lib/scheduling/breaches.h"
#include "lib/sharing/class_division.h"
#include "lib/sharing/client_lease.h"
#include "lib/sharing/link_turns.h"
#include "lib/sharing/sharing_client.h"
#include "lib/sharing/sharing_mode.h"

namespace sluice {

// Divides the budget of one link among its clients. It is a state machine like LinkSchedule: it takes events with their
// time, and returns leases. There is one for each link. Not thread-safe. It reads no clock.
//
// Invariant: a lease grows only by free bytes. For each client, the largest of these amounts is not free: its lease, an
// earlier lease that it may still use, the limit that it reports, and the bytes in flight that it reports. For
// `drain_time`, bytes that may still be on the way to clients that are gone are not free either. All bytes in flight
// therefore fit the budget, however late messages are.
//
// A lease is 0 or at least the cost of the client's next call, since a call that does not fit is not sent. If these
// costs do not all fit the budget, clients take turns. Clients share by their classes of traffic (DivideByClass), and a
// lease has the weights of the client's classes in its own schedule. Received bytes are counted against weights and
// correct the shares, since leases are quantised by the size of grants. See docs/internals/sharing.md.
class LinkDivider {
 public:
  using ClientId = uint64_t;  // chosen by the owner, never reused
  static constexpr std::string_view kDefaultClass = "default";

  struct Options {
    int64_t budget_bytes = 0;  // at least 1
    SharingMode mode = SharingMode::kWeighted;
    int64_t frame_bytes = 1514;  // a lease stays as it is if it would change by less; at least 1
    std::chrono::nanoseconds lease_time = std::chrono::milliseconds(250);   // above 0
    std::chrono::nanoseconds drain_time = std::chrono::milliseconds(5);     // at least 0
    std::chrono::nanoseconds start_grace = std::chrono::milliseconds(300);  // at least 0
  };
  static absl::Status Validate(
      const Options& options);  // InvalidArgument that names the field, its value and its bound

  // Clients of an earlier daemon use the safe shares that they received from it. For `start_grace`, until all clients
  // have reconnected, nothing is divided, and they keep their safe shares.
  LinkDivider(const Options& options, TimePoint now);
  LinkDivider(const LinkDivider&) = delete;
  LinkDivider& operator=(const LinkDivider&) = delete;

  // Events append the resulting leases. Unknown clients are ignored. A `now` before the last event's time counts as
  // that time.
  // The client gets a lease when it reports. Clients share the classes that they have by the same name. The reports of
  // a client without classes have none; its traffic is in the class kDefaultClass.
  void Join(TimePoint now, ClientId client, double weight, const std::vector<std::string>& classes = {});
  void Leave(TimePoint now, ClientId client, std::vector<ShareLease>& leases);
  void Report(TimePoint now, ClientId client, const ShareReport& report, std::vector<ShareLease>& leases);
  void SetBudget(TimePoint now, int64_t budget_bytes, std::vector<ShareLease>& leases);  // at least 1
  void OnTimer(TimePoint now, std::vector<ShareLease>& leases);
  TimePoint NextTimer() const;  // TimePoint::max() if there is nothing to wait for

  Breaches& breaches() { return breaches_; }
  const Options& options() const { return options_; }
  int64_t draining_bytes() const;  // bytes that may be on the way to clients that are gone
  int64_t entitled_bytes() const;  // all bytes that are not free, including the draining bytes

  struct ClientState {
    bool expired = false;
    int64_t lease_bytes = 0;
    ShareReport report;  // the last one
    int64_t lease_changes = 0;
    int64_t expirations = 0;
  };
  ClientState State(ClientId client) const;  // all zeros for an unknown client

 private:
  using Client = SharingClient;
  struct Draining {
    TimePoint until;
    int64_t bytes;
  };

  void Enter(TimePoint now);
  void Expire(Client& client);
  void Drain(const Client& client);
  bool InGrace() const { return now_ < started_at_ + options_.start_grace; }

  void Divide(std::vector<ShareLease>& leases);
  void IndexClasses();
  ShareLease Send(Client& client) const;
  std::vector<std::vector<ClassPart>> PartsOf(const std::vector<Client*>& clients, bool boosted) const;
  std::vector<double> TargetWeights(const std::vector<Client*>& served) const;
  bool SharesByClass() const;
  void SetShareWeights();
  void SetShares();
  void SetTargets(const std::vector<Client*>& served);
  void Shrink(const std::vector<Client*>& served);
  void Grow(const std::vector<Client*>& served);
  bool GrowOne(Client& client, int64_t& free_bytes);
  void SetSafeShares();
  bool WorthTelling(int64_t before_bytes, int64_t bytes) const;

  Options options_;
  const TimePoint started_at_;
  TimePoint now_;
  std::map<ClientId, Client> clients_;
  LinkTurns turns_;                // of clients_
  std::deque<Draining> draining_;  // by time
  Breaches breaches_;
};

}  // namespace sluice
