#pragma once

#include <cstdint>
#include <vector>

#include "sluice/time_point.h"

namespace sluice {

// A lease for a client: it may have `bytes` in flight until `lease_time` after it sent its last report.
struct ShareLease {
  uint64_t client = 0;
  uint64_t id = 0;  // grows by one with each change; a repeated id only prolongs the lease
  int64_t bytes = 0;
  int64_t safe_bytes = 0;  // may be in flight when no daemon divides the link
  // The weights of the client's classes, in the order of its Join. Empty: the client's own weights.
  std::vector<double> class_weights;
};

// The lease of one client, and the earlier leases that the client may still use because messages in both directions may
// be late. There is one for each client of a LinkDivider. Not thread-safe.
class ClientLease {
 public:
  int64_t bytes() const { return current_.bytes; }
  int64_t safe_bytes() const { return current_.safe_bytes; }
  int64_t changes() const { return changes_; }  // number of times that `bytes` has changed
  // The most bytes of any lease that the client may still use.
  int64_t MostBytes() const;
  int64_t MostSafeBytes() const;

  // Several changes before Send make one lease.
  void SetBytes(int64_t bytes);
  void SetSafeBytes(int64_t safe_bytes);
  bool changed() const { return changed_; }  // and the change was not sent yet

  ShareLease Send(TimePoint now, uint64_t client);
  bool sent() const { return sent_; }  // the client has received a lease, which has not expired
  TimePoint sent_at() const { return sent_at_; }

  void Acknowledge(uint64_t id);  // the client uses the lease `id`, and no earlier one
  void Expire();                  // the client no longer uses any of them

 private:
  struct Promise {
    uint64_t id = 0;
    int64_t bytes = 0;
    int64_t safe_bytes = 0;
  };

  Promise& Change();

  Promise current_;
  Promise acknowledged_;  // may have expired at the client, and revive with a message that is on its way
  std::vector<Promise> unacknowledged_;
  TimePoint sent_at_;
  bool sent_ = false;
  bool changed_ = false;
  int64_t changes_ = 0;
};

}  // namespace sluice
