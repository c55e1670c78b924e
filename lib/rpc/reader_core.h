#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "lib/rpc/fan_out.h"
#include "lib/rpc/worker_channels.h"
#include "lib/stripe/stripe_layout.h"
#include "sluice/block_reader.h"

namespace sluice {

// What a worker's error means to the reader of a file: a worker's NOT_FOUND is about its part of the file, its
// RESOURCE_EXHAUSTED is not our full queue.
absl::StatusCode ReaderCode(absl::StatusCode worker_code);

// What all reads of one BlockReader share: the link, the channels, the options, and the manifests seen so far. Outlives
// its reads: the destructor waits for their fan-outs. Thread-safe.
class ReaderCore {
 public:
  ReaderCore(std::shared_ptr<Link> link, WorkerChannels channels, BlockReader::Options options);
  ~ReaderCore();

  const BlockReader::Options& options() const { return options_; }
  const WorkerChannels& channels() const { return channels_; }
  LinkDriver& link() { return link_->driver(); }
  AggregatorMetrics& metrics() { return link().metrics(); }
  int64_t RangeBytesFor(int64_t sru_bytes);

  // A manifest is kept until a read of its file fails: the file may have been striped anew.
  std::shared_ptr<const StripeLayout> FindLayout(const std::string& file) const;
  void KeepLayout(const std::string& file, std::shared_ptr<const StripeLayout> layout);
  void ForgetLayout(const std::string& file);

  // FanOut::Start on this reader's link. Cancelled: the reader is being destroyed.
  absl::StatusOr<std::shared_ptr<FanOut>> StartFanOut(std::vector<FanOutCall> calls, TimePoint deadline,
                                                      FanOut::Handlers handlers);

 private:
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return fan_outs_.empty(); }
  void OnFanOutEnded(uint64_t id);

  const std::shared_ptr<Link> link_;
  const WorkerChannels channels_;
  const BlockReader::Options options_;

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<const StripeLayout>> layouts_ ABSL_GUARDED_BY(mutex_);
  // Those under way, by a number of their own. One that has not been started yet is null.
  absl::flat_hash_map<uint64_t, std::weak_ptr<FanOut>> fan_outs_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_fan_out_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice
