#pragma once

#include <memory>
#include <string>

#include "sluice/block_reader.h"

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "lib/fan_out/fan_out_core.h"
#include "lib/stripe/stripe_layout.h"

namespace sluice {

// What a worker's error means to the reader of a file: a worker's NOT_FOUND is about its part of the file, its
// RESOURCE_EXHAUSTED is not our full queue.
absl::StatusCode ReaderCode(absl::StatusCode worker_code);

// Lets streams into the core of their reader while it is there: consumers may hold a stream for longer than the reader.
// One a ReaderCore; outlives it. Thread-safe.
class ReaderGate {
 public:
  // Tells whether the core is there; then it stays for as long as the pass does.
  class Pass {
   public:
    explicit Pass(ReaderGate& gate) : gate_(gate), open_(gate.Enter()) {}
    ~Pass() {
      if (open_) gate_.Leave();
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    explicit operator bool() const { return open_; }

   private:
    ReaderGate& gate_;
    const bool open_;
  };

  void Close();  // for good; waits until the last pass is gone

 private:
  bool Enter();
  void Leave();
  bool Empty() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return passes_ == 0; }

  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int passes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// What all reads of one BlockReader share: the fan-outs to its workers, the options, and the manifests seen so far.
// Outlives its reads: the destructor waits for their steps and calls. Thread-safe.
class ReaderCore {
 public:
  ReaderCore(std::shared_ptr<Link> link, WorkerChannels channels, BlockReader::Options options);
  ~ReaderCore();

  const BlockReader::Options& options() const { return options_; }
  FanOutCore& fan_out() { return fan_out_; }
  const WorkerChannels& channels() const { return fan_out_.channels(); }
  const std::shared_ptr<ReaderGate>& gate() const { return gate_; }
  LinkDriver& link() { return fan_out_.link(); }
  AggregatorMetrics& metrics() { return fan_out_.metrics(); }
  int64_t RangeBytesFor(int64_t sru_bytes);

  // A manifest is kept until a read of its file fails: the file may have been striped anew.
  std::shared_ptr<const StripeLayout> FindLayout(const std::string& file) const;
  void KeepLayout(const std::string& file, std::shared_ptr<const StripeLayout> layout);
  void ForgetLayout(const std::string& file);

 private:
  FanOutCore fan_out_;
  const BlockReader::Options options_;
  const std::shared_ptr<ReaderGate> gate_ = std::make_shared<ReaderGate>();

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<const StripeLayout>> layouts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
