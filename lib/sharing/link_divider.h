#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/scheduling/link_schedule.h"

namespace sluice {

// The rule that divides the budget of a link. Flags and configs use these names.
//   weighted  Clients with demand get shares in proportion to their weights.
//   fifo      One block of one client at a time, in the order of their requests, as the source paper proposes.
enum class SharingMode { kWeighted, kFifo };
std::string_view SharingModeName(SharingMode mode);
absl::StatusOr<SharingMode> ParseSharingMode(std::string_view name);

// The report of a client. Sizes as in LinkDemand.
struct ShareReport {
  uint64_t acknowledged = 0;  // the newest lease that the client uses; 0: none
  int64_t limit_bytes = 0;    // maximum that the client has in flight now
  int64_t demand_bytes = 0;   // 0: it is idle
  int64_t in_flight_bytes = 0;
  int64_t need_bytes = 0;
  int64_t received_bytes = 0;
  uint64_t oldest_block = 0;
  std::chrono::nanoseconds oldest_block_age{0};
};

// A lease for a client: it may have `bytes` in flight until `lease_time` after it sent its last report.
struct ShareLease {
  uint64_t client = 0;
  uint64_t id = 0;  // grows by one with each change; a repeated id only prolongs the lease
  int64_t bytes = 0;
  int64_t safe_bytes = 0;  // may be in flight when no daemon divides the link
};

// Divides the budget of one link among its clients. It is a state machine like LinkSchedule: it takes events with their
// time, and returns leases. There is one for each link. Not thread-safe. It reads no clock.
//
// Invariant: a lease grows only by free bytes. For each client, the largest of these amounts is not free: its lease, an
// earlier lease that it may still use, the limit that it reports, and the bytes in flight that it reports. For
// `drain_time`, bytes that may still be on the way to clients that are gone are not free either. All bytes in flight
// therefore fit the budget, however late messages are.
//
// A lease is 0 or at least the cost of the client's next call, since a call that does not fit is not sent. If these
// costs do not all fit the budget, clients take turns. Received bytes are counted against weights and correct the
// shares, since leases are quantised by the size of grants. See docs/internals/sharing.md.
class LinkDivider {
 public:
  using ClientId = uint64_t;  // chosen by the owner, never reused

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

  // Events append the resulting leases. Unknown clients are ignored. A `now` before the last event's time counts as
  // that time.
  void Join(TimePoint now, ClientId client, double weight);  // the client gets a lease when it reports
  void Leave(TimePoint now, ClientId client, std::vector<ShareLease>& leases);
  void Report(TimePoint now, ClientId client, const ShareReport& report, std::vector<ShareLease>& leases);
  void SetBudget(TimePoint now, int64_t budget_bytes, std::vector<ShareLease>& leases);  // at least 1
  void OnTimer(TimePoint now, std::vector<ShareLease>& leases);
  TimePoint NextTimer() const;  // TimePoint::max() if there is nothing to wait for

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
  struct Promise {
    uint64_t id = 0;
    int64_t bytes = 0;
    int64_t safe_bytes = 0;
  };
  struct Client {
    ClientId id = 0;
    double weight = 1;
    bool alive = false;  // has reported, less than a lease time ago
    ShareReport report;
    TimePoint expires_at;
    TimePoint asked_at;           // fifo: when its oldest block was submitted
    int64_t last_need_bytes = 0;  // need of its last call that waited

    // The leases that the client received, and the leases that it may still use.
    uint64_t lease_id = 0;
    int64_t lease_bytes = 0;
    int64_t safe_bytes = 0;
    Promise acknowledged;  // may have expired at the client, and revive with a message that is on its way
    std::vector<Promise> unacknowledged;
    TimePoint told_at;
    bool told = false;     // it has received a lease
    bool changed = false;  // the lease has changed, and the change was not sent yet

    // The amounts that the client should have.
    int64_t share_bytes = 0;  // by its weight, among busy clients
    int64_t floor_bytes = 0;
    int64_t target_bytes = 0;
    double credit_bytes = 0;  // how far it is behind other clients; negative if it is ahead

    // Its turn.
    bool in_turn = false;
    bool waits = false;      // it waited for its turn at the last division
    int64_t turn_bytes = 0;  // bytes received in its turn
    uint64_t turn_block = 0;
    TimePoint stalls_at;  // when its turn ends unless bytes arrive

    int64_t lease_changes = 0;
    int64_t expirations = 0;

    bool hungry() const { return alive && report.demand_bytes > 0; }
    // If false, all its calls are at its workers, and the link can do nothing for it.
    bool needy() const { return hungry() && report.need_bytes > 0; }
    int64_t EntitledBytes() const;
    int64_t EntitledSafeBytes() const;
  };
  struct Draining {
    TimePoint until;
    int64_t bytes;
  };

  // Bound of credit_bytes, in budgets: some tens of milliseconds of the link.
  static constexpr double kCreditBudgets = 8;

  void Enter(TimePoint now);
  void Expire(Client& client);
  void Drain(const Client& client);
  void Acknowledge(Client& client, uint64_t id);
  void Account(Client& from, int64_t received_bytes);
  bool Contends(const Client& client) const;
  bool SomebodyWaits() const;
  bool InGrace() const { return now_ < started_at_ + options_.start_grace; }

  void Divide(std::vector<ShareLease>& leases);
  void SetShares();
  void EndStalledTurns();
  std::vector<Client*> HungryInOrder();
  std::vector<Client*> TakeTurns(const std::vector<Client*>& hungry);
  void SetTargets(const std::vector<Client*>& served);
  void Spread(int64_t bytes, const std::vector<Client*>& clients);
  bool HasTurn(const Client& client) const;
  bool MayStall(const Client& client) const;
  int64_t TurnBytes() const;
  TimePoint StallsAt() const;
  double EffectiveWeight(const Client& client) const;

  void Shrink(const std::vector<Client*>& served);
  void Grow(const std::vector<Client*>& served);
  bool GrowOne(Client& client, int64_t& free_bytes);
  void SetSafeShares();
  bool WorthTelling(int64_t before_bytes, int64_t bytes) const;
  static void ForgetOldPromises(std::vector<Promise>& promises);
  static void Change(Client& client, int64_t lease_bytes, int64_t safe_bytes);
  void Tell(Client& client, std::vector<ShareLease>& leases);

  Options options_;
  const TimePoint started_at_;
  TimePoint now_;
  std::map<ClientId, Client> clients_;
  std::deque<Draining> draining_;  // by time
};

}  // namespace sluice
