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
#include "lib/sharing/class_names.h"
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
//
// A report takes time in proportion to the classes of its client. A division takes time in proportion to all clients,
// so events that come close together share one.
class LinkDivider {
 public:
  using ClientId = uint64_t;  // chosen by the owner, never reused
  static constexpr std::string_view kDefaultClass = "default";
  static constexpr std::chrono::nanoseconds kMaxDivisionPause = std::chrono::milliseconds(2);

  struct Options {
    int64_t budget_bytes = 0;  // at least 1
    SharingMode mode = SharingMode::kWeighted;
    int64_t frame_bytes = 1514;  // a lease stays as it is if it would change by less; at least 1
    std::chrono::nanoseconds lease_time = std::chrono::milliseconds(250);   // above 0
    std::chrono::nanoseconds drain_time = std::chrono::milliseconds(5);     // at least 0
    std::chrono::nanoseconds start_grace = std::chrono::milliseconds(300);  // at least 0
    // Between two divisions, for each client, and at most kMaxDivisionPause for all. A division may send a lease to
    // each client, which takes some microseconds. At least 0.
    std::chrono::nanoseconds division_pause = std::chrono::microseconds(16);
  };
  static absl::Status Validate(
      const Options& options);  // InvalidArgument that names the field, its value and its bound

  // Clients of an earlier daemon use the safe shares that they received from it. For `start_grace`, until all clients
  // have reconnected, nothing is divided, and they keep their safe shares.
  LinkDivider(const Options& options, TimePoint now);
  LinkDivider(const LinkDivider&) = delete;
  LinkDivider& operator=(const LinkDivider&) = delete;

  // Events append the resulting leases, or OnTimer does after the pause. Unknown clients are ignored. A `now` before
  // the last event's time counts as that time. The client gets a lease when it reports. Clients share the classes that
  // they have by the same name. The reports of a client without classes have none; its traffic is in the class
  // kDefaultClass.
  void Join(TimePoint now, ClientId client, double weight, const std::vector<std::string>& classes = {});
  void Leave(TimePoint now, ClientId client, std::vector<ShareLease>& leases);
  void Report(TimePoint now, ClientId client, const ShareReport& report, std::vector<ShareLease>& leases);
  void SetBudget(TimePoint now, int64_t budget_bytes, std::vector<ShareLease>& leases);  // at least 1
  void OnTimer(TimePoint now, std::vector<ShareLease>& leases);
  // The least time between two reports of a client. A report takes some microseconds, so many clients report less
  // often.
  std::chrono::nanoseconds ReportPause() const { return all_.size() * std::chrono::microseconds(25); }
  TimePoint NextTimer() const;  // TimePoint::max() if there is nothing to wait for. It may be early

  Breaches& breaches() { return breaches_; }
  const Options& options() const { return options_; }
  int64_t expirations() const { return expirations_; }  // of all clients, also of those that are gone
  int64_t draining_bytes() const;                       // bytes that may be on the way to clients that are gone
  int64_t entitled_bytes() const;                       // all bytes that are not free, including the draining bytes

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

  void Claim(Client& client);
  void Unclaim(Client& client);

  TimePoint MayDivideAt() const;
  void DivideSoon(std::vector<ShareLease>& leases);
  void Divide(std::vector<ShareLease>& leases);
  ShareLease Send(Client& client) const;
  void SetShareWeights();
  void SetClassShare(Client& client);
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
  std::vector<Client*> all_;  // clients_, in their order; faster to pass through
  ClassNames class_names_;
  ClassDivision classes_;  // among hungry clients
  LinkTurns turns_;        // of all_
  TimePoint divided_at_ = TimePoint::min();
  bool awaits_division_ = false;
  TimePoint wakes_at_ = TimePoint::max();  // as of the last division: a lease or a turn may end
  int64_t expirations_ = 0;
  std::deque<Draining> draining_;  // by time
  Breaches breaches_;
};

}  // namespace sluice
