#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/link/link_loop.h"
#include "lib/link/worker.h"
#include "lib/proxy/target_policy.h"
#include "lib/tls/tls_context.h"

namespace sluice {

// Waits for the first look-up of a target. The waiter must leave the target before it is destroyed.
class TargetWaiter
    : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  virtual ~TargetWaiter() = default;
  virtual void OnTargetKnown() = 0;
};

// One name or address that clients call, and its workers: one for each address of the name. Calls take the workers of
// one address family in turn. If no such worker can be reached, calls take the workers of the other family. The name is
// looked up again every 5 s while clients call it. Its workers belong to the link from the first call on: a target that
// only has tunnels has none there. There is one for each target of a proxy. Used on the link's thread only.
class Target {
 public:
  // A worker for one call, and the pattern of the policy that permits the call.
  struct Choice {
    std::shared_ptr<Worker> worker;
    std::string pattern;
  };

  // `name` has passed CheckTarget of the policy. Null `tls` means plaintext. The loop must outlive the target.
  Target(LinkLoop& loop, std::shared_ptr<const TargetPolicy> policy, std::shared_ptr<TlsContext> tls, std::string name);
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  const std::string& name() const { return name_; }
  // False until the first look-up has ended; if false, call Wait. The look-up runs only while a waiter waits.
  bool known() const { return known_; }
  void Wait(TargetWaiter& waiter);
  void Leave(TargetWaiter& waiter);  // does nothing if the waiter does not wait
  // Whether it has workers. Returns Unavailable if the name cannot be looked up, and PermissionDenied if no address of
  // it may be called.
  absl::Status Check();
  // Chooses the worker of the next call. Prefers a connected worker, then a worker that is still connecting. If all
  // connections have failed, returns one of the failed workers. Errors as Check.
  absl::StatusOr<Choice> Pick();
  size_t workers() const { return places_.size(); }
  TimePoint last_use() const { return last_use_; }
  bool connected() const;  // to one of its workers

 private:
  void LookUp();
  void OnAddresses(absl::StatusOr<std::vector<WorkerAddress>> addresses);
  void FindWorkers();
  void Dial(size_t choices);
  int Rank(size_t choice) const;

  LinkLoop& loop_;
  const std::shared_ptr<const TargetPolicy> policy_;
  const std::shared_ptr<TlsContext> tls_;
  const std::string name_;
  const std::string host_;
  bool known_ = false;
  absl::Status failure_;  // why there is no place
  // Addresses that may be called.
  struct Place {
    std::string address;
    std::string pattern;
  };
  std::vector<Place> places_;
  bool called_ = false;
  std::vector<Choice> choices_;  // of the places, once it was called
  size_t of_family_ = 0;         // number of choices at the front that calls take in turn
  size_t dialled_ = 0;           // number of choices at the front whose connection was started
  size_t next_ = 0;
  TimePoint last_use_;
  TimePoint looked_;
  std::shared_ptr<void> look_up_;
  boost::intrusive::list<TargetWaiter, boost::intrusive::constant_time_size<false>> waiting_;
};

}  // namespace sluice
