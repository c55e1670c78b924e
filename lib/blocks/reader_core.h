#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sluice/block_reader.h"

#include "absl/status/status.h"
#include "lib/blocks/layout_cache.h"
#include "lib/blocks/manifest_fetch.h"
#include "lib/fan_out/fan_out_core.h"
#include "lib/fan_out/fan_out_run.h"
#include "lib/stripe/stripe_layout.h"

namespace sluice {

class StripeRead;

// What a worker's error means to the reader of a file: a worker's NOT_FOUND is about its part of the file, its
// RESOURCE_EXHAUSTED is not our full queue.
absl::StatusCode ReaderCode(absl::StatusCode worker_code);

// What all reads of one BlockReader share: its workers, the options, how files are striped, and the reads themselves.
// One a BlockReader; for the link's thread only.
class ReaderCore {
 public:
  // The link and the callbacks outlive it.
  ReaderCore(LinkCore& link, Callbacks& callbacks, std::shared_ptr<TlsContext> tls, BlockReader::Options options);
  ~ReaderCore();  // closed, and idle
  ReaderCore(const ReaderCore&) = delete;
  ReaderCore& operator=(const ReaderCore&) = delete;

  const BlockReader::Options& options() const { return options_; }
  FanOutCore& fan_out() { return fan_out_; }
  LinkCore& link() { return fan_out_.link(); }
  Callbacks& callbacks() { return fan_out_.callbacks(); }
  AggregatorMetrics& metrics() { return link().metrics(); }

  const WorkerSet& workers() const { return *workers_; }
  const std::string& address(size_t worker) const { return (*workers_->addresses)[worker]; }
  // A run without asks yet, with the reader's options.
  FanOutRun::Spec SpecFor(std::string path, TimePoint deadline) const;

  // Connects to all workers, and stays connected.
  void ConnectAll();
  bool connects_all() const { return connects_all_; }

  // How a file is striped is kept until a read of it fails: it may have been striped anew. Null: not known.
  std::shared_ptr<const StripeLayout> FindLayout(const std::string& file) { return layouts_.Find(file); }
  void ForgetLayout(const std::string& file);
  // Asks the workers, once for all that want to know at the same time. `waiter` may hear of it within this call.
  std::shared_ptr<ManifestFetch> FetchLayout(const std::string& file, ManifestFetch::Waiter& waiter);
  // Of the fetch itself: nobody joins it any more. Null: it has found nothing.
  void OnFetched(const ManifestFetch& fetch, std::shared_ptr<const StripeLayout> layout);

  void Enter(std::shared_ptr<StripeRead> read);
  void Leave(StripeRead& read);
  // Its next step, at the end of this turn: most that comes in one turn makes one step.
  void PumpLater(StripeRead& read);

  // Cancels all reads, and calls back once when their last call has ended. No read enters after that.
  void Close(std::function<void()> on_idle);

 private:
  void PumpAll();

  const BlockReader::Options options_;
  FanOutCore fan_out_;
  const std::shared_ptr<const WorkerSet> workers_;
  bool connects_all_ = false;
  LayoutCache layouts_;
  std::map<std::string, std::shared_ptr<ManifestFetch>> fetches_;  // that can be joined
  std::map<StripeRead*, std::shared_ptr<StripeRead>> reads_;
  std::vector<std::shared_ptr<StripeRead>> to_pump_;
};

}  // namespace sluice
