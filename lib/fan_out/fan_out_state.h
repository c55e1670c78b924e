#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/access_record.h"

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/fan_out/attempt_budget.h"
#include "lib/fan_out/worker_history.h"
#include "lib/link/callbacks.h"
#include "lib/link/link_loop.h"
#include "lib/link/method_history.h"
#include "lib/link/worker_ejections.h"

namespace sluice {

class FanOutRun;

// The workers of a FanOut or BlockReader at one moment. An immutable value, used on the link's thread only, because it
// holds workers.
struct WorkerSet {
  std::shared_ptr<const std::vector<std::string>> addresses;
  std::vector<std::shared_ptr<Worker>> workers;  // in the same order
};

// The state that all fan-outs of one FanOut or BlockReader share: the workers and their history, the tokens for retries
// and hedges, and the runs that have not ended. There is one for each FanOut or BlockReader. Used on the link's thread
// only.
class FanOutState {
 public:
  using Addresses = std::shared_ptr<const std::vector<std::string>>;

  // The link and the callbacks must outlive the state.
  FanOutState(LinkLoop& link, Callbacks& callbacks, std::shared_ptr<TlsContext> tls);
  ~FanOutState();  // must be idle
  FanOutState(const FanOutState&) = delete;
  FanOutState& operator=(const FanOutState&) = delete;

  // Replaces the workers. Workers that stay keep their connections and their history. Runs that have begun continue
  // with their original workers. After a Connect, SetWorkers connects to the new workers.
  void SetWorkers(const Addresses& addresses);
  // Returns the set of workers with these addresses, which may be older than the current one.
  std::shared_ptr<const WorkerSet> SetOf(const Addresses& addresses);
  // Connects to all workers. Calls `on_done` once, when all workers are connected or after the timeout, with the
  // workers that are not connected.
  void Connect(absl::Duration timeout, std::function<void(std::vector<size_t> unconnected)> on_done);

  // Ends all current and later runs with `why`. Calls `on_idle` when the last run has ended.
  void Close(absl::Status why, std::function<void()> on_idle);
  bool closing() const { return on_idle_.has_value(); }
  const absl::Status& why_closing() const { return why_closing_; }
  // Returns whether it is closing, and no run and no callback is left.
  bool HasClosed() const { return closing() && runs_.empty() && held_ == 0; }

  void Enter(std::shared_ptr<FanOutRun> run);
  void Leave(FanOutRun& run);
  // Keeps the state from being idle while callbacks of an ended run are still running.
  void Hold() { ++held_; }
  void Release();

  MethodHistory& History(const std::string& path) { return histories_[path]; }
  // Returns the primary and the replicas in the order in which they are tried.
  std::vector<size_t> OrderOf(const WorkerSet& workers, size_t primary, const std::vector<size_t>& replicas);
  // Workers are numbered by Worker::row.
  WorkerHistory& worker_history() { return worker_history_; }
  WorkerEjections& ejections() { return ejections_; }
  AttemptBudget& retries() { return retries_; }
  AttemptBudget& hedges() { return hedges_; }
  LinkLoop& link() { return link_; }
  Callbacks& callbacks() { return callbacks_; }
  void SetOnAccess(OnAccessRecord on_access) { on_access_ = std::move(on_access); }
  const OnAccessRecord& on_access() const { return on_access_; }

 private:
  struct Connecting;
  using ConnectingList = std::list<Connecting>;

  void AwaitConnections(ConnectingList::iterator position);
  void OnConnected(ConnectingList::iterator position);
  void EndConnect(ConnectingList::iterator position);
  void TellIfIdle();

  LinkLoop& link_;
  Callbacks& callbacks_;
  OnAccessRecord on_access_;
  const std::shared_ptr<TlsContext> tls_;
  std::shared_ptr<const WorkerSet> workers_;
  std::map<std::string, MethodHistory> histories_;
  WorkerHistory worker_history_;
  WorkerEjections ejections_;  // destroyed before the workers
  AttemptBudget retries_;
  AttemptBudget hedges_;
  std::vector<std::shared_ptr<FanOutRun>> runs_;
  size_t held_ = 0;
  ConnectingList connecting_;
  bool connects_all_ = false;
  absl::Status why_closing_;
  std::optional<std::function<void()>> on_idle_;  // set while closing
};

}  // namespace sluice
