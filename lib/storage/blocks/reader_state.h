#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sluice/block_reader.h"

#include "absl/status/status.h"
#include "lib/fan_out/fan_out_run.h"
#include "lib/fan_out/fan_out_state.h"
#include "lib/storage/blocks/layout_cache.h"
#include "lib/storage/blocks/manifest_fetch.h"
#include "lib/storage/stripe/stripe_layout.h"

namespace sluice {

class FileRead;

// Converts a worker's error to an error for the reader of a file. A worker's NOT_FOUND concerns its part of the file,
// and its RESOURCE_EXHAUSTED does not come from the link's queue.
absl::StatusCode ReaderCode(absl::StatusCode worker_code);

// The shared state of all reads of one BlockReader: its workers, the options, the stripe layouts, and the reads.
// There is one for each BlockReader, used on the link's thread only.
class ReaderState {
 public:
  // The link and the callbacks must outlive it.
  ReaderState(LinkLoop& link, Callbacks& callbacks, std::shared_ptr<TlsContext> tls, BlockReader::Options options);
  ~ReaderState();  // must be closed and idle
  ReaderState(const ReaderState&) = delete;
  ReaderState& operator=(const ReaderState&) = delete;

  const BlockReader::Options& options() const { return options_; }
  FanOutState& fan_out() { return fan_out_; }
  LinkLoop& link() { return fan_out_.link(); }
  Callbacks& callbacks() { return fan_out_.callbacks(); }
  LinkMetrics& metrics() { return link().metrics(); }

  const WorkerSet& workers() const { return *workers_; }
  const std::string& address(size_t worker) const { return (*workers_->addresses)[worker]; }
  // Returns the spec of a run without asks, with the reader's options.
  FanOutRun::Spec SpecFor(std::string path, TimePoint deadline) const;

  // Connects to all workers, and stays connected.
  void ConnectAll();
  bool connects_all() const { return connects_all_; }

  // The stripe layout of a file; null if it is unknown. It is kept until a read of the file fails, because the file may
  // have been striped again.
  std::shared_ptr<const StripeLayout> FindLayout(const std::string& file) { return layouts_.Find(file); }
  void ForgetLayout(const std::string& file);
  // Fetches the layout from the workers, once for all concurrent waiters. `waiter` may be called within this call.
  // `metadata` is sent to the workers if this is the first waiter; it may be null.
  std::shared_ptr<ManifestFetch> FetchLayout(const std::string& file, std::shared_ptr<const Metadata> metadata,
                                             ManifestFetch::Waiter& waiter);
  // Called by the fetch when it has ended; no other waiter joins it then. `layout` is null if it has found nothing.
  void OnFetched(const ManifestFetch& fetch, std::shared_ptr<const StripeLayout> layout);

  void Enter(std::shared_ptr<FileRead> read);
  void Leave(FileRead& read);
  // Pumps the read at the end of this turn, so that everything that comes in one turn takes one step.
  void PumpLater(FileRead& read);

  // Cancels all reads, and calls back once when their last call has ended. No read may enter from then on.
  void Close(std::function<void()> on_idle);

 private:
  void PumpAll();

  const BlockReader::Options options_;
  FanOutState fan_out_;
  const std::shared_ptr<const WorkerSet> workers_;
  bool connects_all_ = false;
  LayoutCache layouts_;
  std::map<std::string, std::shared_ptr<ManifestFetch>> fetches_;  // fetches that can be joined
  std::map<FileRead*, std::shared_ptr<FileRead>> reads_;
  std::vector<std::shared_ptr<FileRead>> to_pump_;
};

}  // namespace sluice
