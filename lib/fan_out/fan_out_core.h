#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sluice/link.h"

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "lib/rpc/call_group.h"
#include "lib/rpc/connection_keeper.h"
#include "lib/rpc/method_history.h"
#include "lib/rpc/worker_channels.h"

namespace sluice {

// What all fan-outs to one set of workers share: the link, the channels, what the methods' answers were like, and the
// allowance for hedges. One for each FanOut and each BlockReader; outlives their groups: Close waits for them.
// Thread-safe.
class FanOutCore {
 public:
  FanOutCore(std::shared_ptr<Link> link, WorkerChannels channels);
  ~FanOutCore();  // closes

  const WorkerChannels& channels() const { return channels_; }
  // WorkerChannels::Connect; and from now on the connections are kept.
  std::vector<size_t> Connect(absl::Duration timeout);
  ConnectionKeeper& keeper() { return keeper_; }
  LinkDriver& link() { return link_->driver(); }
  const std::shared_ptr<Link>& shared_link() const { return link_; }
  AggregatorMetrics& metrics() { return link().metrics(); }

  // CallGroup::Start on this link. Cancelled: it is closing.
  absl::StatusOr<std::shared_ptr<CallGroup>> StartGroup(std::vector<GroupCall> calls, TimePoint deadline,
                                                        CallGroup::Handlers handlers);
  // Cancels the groups under way, waits until nobody holds them, and lets no other one start.
  void Close();
  bool closing() const;

  std::shared_ptr<MethodHistory> History(const std::string& method);

  // Every request allows for a part of a hedge, and one is taken when there is enough for a whole one.
  void AllowHedges(double hedges);
  bool TakeHedge();

 private:
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return groups_.empty(); }
  void OnGroupGone(uint64_t id);

  const std::shared_ptr<Link> link_;
  const WorkerChannels channels_;

  mutable absl::Mutex mutex_;
  // Those under way, by a number of their own. One that has not been started yet is null.
  absl::flat_hash_map<uint64_t, std::weak_ptr<CallGroup>> groups_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_group_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<std::string, std::shared_ptr<MethodHistory>> histories_ ABSL_GUARDED_BY(mutex_);
  double hedges_allowed_ ABSL_GUARDED_BY(mutex_);

  ConnectionKeeper keeper_;
};

}  // namespace sluice
