#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/intrusive/list.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/link/link_loop.h"
#include "lib/link/worker.h"
#include "lib/link/worker_ejections.h"
#include "lib/net/executor.h"
#include "lib/net/happy_eyeballs_socket.h"
#include "lib/net/timer_queue.h"
#include "lib/proxy/look_up_turns.h"
#include "lib/proxy/retry_throttle.h"
#include "lib/proxy/target_policy.h"
#include "lib/tls/tls_context.h"

namespace sluice {

// Waits for the next step of a target: its first look-up, or the choice of its family. The waiter must leave the target
// before it is destroyed.
class TargetWaiter
    : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  virtual ~TargetWaiter() = default;
  virtual void OnTargetStep() = 0;
};

// One name or address that clients call, and its workers: one for each address of the name. Calls take the workers of
// one address family in turn. If no such worker can be reached, calls take the workers of the other family. The name is
// looked up again every 5 s while clients call it. Its workers belong to the link from the first call on: a target that
// only has tunnels has none there. There is one for each target of a proxy. Used on the link's thread only.
//
// The family is the one that has connected last, by RFC 8305: a tunnel to the target shows it, or a connection that the
// target makes before its first call and ends at once. Rejected: to start the workers of the second family after a
// delay. Calls that wait for a worker of the first family stay there until its attempt has failed, after 5 s.
class Target final : public std::enable_shared_from_this<Target>, private StreamSocketEvents {
 public:
  // A worker for one call, and the pattern of the policy that permits the call.
  struct Choice {
    std::shared_ptr<Worker> worker;
    std::string pattern;
  };

  // `name` has passed CheckTarget of the policy. Null `tls` means plaintext. Its first look-up takes a turn of `group`.
  // The loop must outlive the target.
  Target(LinkLoop& loop, std::shared_ptr<const TargetPolicy> policy, std::shared_ptr<TlsContext> tls, std::string name,
         std::shared_ptr<LookUpTurns> turns, size_t group);
  ~Target() override;
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  const std::string& name() const { return name_; }
  // False until the first look-up has ended; if false, call Wait. The look-up runs only while a waiter waits.
  bool looked_up() const { return looked_up_; }
  // The same for the choice of the family, which follows.
  bool has_family() const;
  void Wait(TargetWaiter& waiter);
  void Leave(TargetWaiter& waiter);  // does nothing if the waiter does not wait
  // Whether it has workers. Returns Unavailable if the name cannot be looked up, and PermissionDenied if no address of
  // it may be called.
  absl::Status Check();
  // Chooses the worker of the next call. Prefers a connected worker that is not ejected, then a worker that is still
  // connecting, then an ejected worker. If all connections have failed, returns one of the failed workers. Errors as
  // Check.
  // `tried`: the rows of workers that are chosen only if there are no others.
  absl::StatusOr<Choice> Pick(absl::Span<const size_t> tried = {});
  // A call to one of its workers has ended: whether the worker is ejected depends on it.
  void OnCallEnded(const OutlierEjection::Call& call) {
    if (ejections_ != nullptr) ejections_->OnEnded(call);
  }
  RetryThrottle& retries() { return retries_; }
  size_t workers() const { return places_.size(); }
  // The pattern that permits its first address; empty before Check.
  std::string pattern() const { return places_.empty() ? std::string() : places_.front().pattern; }
  std::vector<WorkerAddress> addresses() const;  // that may be called
  // The same for one connection: each begins with the next address of the family that calls use.
  std::vector<WorkerAddress> NextAddresses();
  TimePoint now() const { return loop_.now(); }
  TimePoint last_use() const { return last_use_; }
  bool connected() const;  // to one of its workers
  // A connection to this address of the target stands. Calls use its family, and its worker, if it backs off after a
  // failure, tries again at once.
  void OnReached(const WorkerAddress& address);

 private:
  // StreamSocketEvents, of the search for a family.
  void OnConnected() override;
  void OnBytes(absl::string_view) override {}
  void OnDisconnected(absl::Status) override { EndSearch(); }

  void LookUp();
  void FindFamily();
  void EndSearch();
  void OrderFamilies();
  void Notify();
  void OnAddresses(absl::StatusOr<std::vector<WorkerAddress>> addresses);
  void FindWorkers();
  void Dial(size_t choices);
  int Rank(size_t choice, absl::Span<const size_t> tried) const;

  LinkLoop& loop_;
  const std::shared_ptr<const TargetPolicy> policy_;
  const std::shared_ptr<TlsContext> tls_;
  const std::string name_;
  const std::string host_;
  bool looked_up_ = false;
  absl::Status failure_;  // why there is no place
  // Addresses that may be called.
  struct Place {
    std::string address;
    std::string pattern;
  };
  std::vector<Place> places_;
  bool called_ = false;
  std::vector<Choice> choices_;                 // of the places, once it was called
  std::unique_ptr<WorkerEjections> ejections_;  // null: it has had one choice at most. Destroyed before the choices
  RetryThrottle retries_;
  size_t of_family_ = 0;  // number of places, and choices, at the front that calls take in turn
  size_t dialled_ = 0;    // number of choices at the front whose connection was started
  size_t next_ = 0;
  size_t next_dial_ = 0;
  TimePoint last_use_;
  TimePoint looked_;
  std::shared_ptr<void> look_up_;
  LookUpTurns::Turn first_look_up_;
  std::optional<bool> prefers_ipv6_;             // the family that has connected last
  bool searched_ = false;                        // for a family, perhaps in vain
  std::unique_ptr<HappyEyeballsSocket> search_;  // null: none is under way
  TimerQueue::Id search_timer_;
  using Waiters = boost::intrusive::list<TargetWaiter, boost::intrusive::constant_time_size<false>>;
  Waiters waiting_;
};

}  // namespace sluice
