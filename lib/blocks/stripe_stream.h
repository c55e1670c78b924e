#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "sluice/read_stream.h"

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "lib/blocks/manifest_fetch.h"
#include "lib/blocks/reader_core.h"
#include "lib/blocks/segment_fetch.h"

namespace sluice {

// A read of a data block or of a whole file: fetches the manifest, then segment after segment with one ahead of the one
// that is handed out, so that the link never waits for the consumer's round trip, and memory is bounded by two of them.
//
// Events come on any thread: the consumer's Next, a fetch's progress, the manifest. Each calls Pump, and one of them at
// a time runs the steps; the others only mark that there is more to do. So what the steps touch needs no lock, and no
// lock is held while a fetch is started or the consumer called.
class StripeStream final : public ReadStream, public std::enable_shared_from_this<StripeStream> {
 public:
  // What of the file: a data block by its number, or the one that holds a byte; neither: all of it.
  struct Target {
    std::optional<uint64_t> block;
    std::optional<uint64_t> block_at;  // a byte of the file
  };
  StripeStream(ReaderCore& core, std::string file, const Target& target, const ReadOptions& options);
  ~StripeStream() override;

  void Next(Callback callback) override;
  using ReadStream::Next;
  void Cancel() override;

 private:
  void Pump();
  void Step();
  absl::StatusOr<std::optional<ReadPart>> Advance(bool cancelled);
  void StopFetching();
  absl::StatusOr<std::optional<ReadPart>> Produce();
  absl::StatusOr<std::optional<ReadPart>> Begin();
  absl::StatusOr<std::optional<uint64_t>> BlockOf(const StripeLayout& layout) const;
  void AskForLayout();
  absl::Status StartFetches();
  SegmentFetch::Spec NextSegment() const;
  absl::StatusOr<std::optional<ReadPart>> TakeFromFront();
  TimePoint BlockDeadline() const;
  std::function<void()> PumpLater();

  ReaderCore& core_;  // touched with a pass of the gate only
  const std::shared_ptr<ReaderGate> gate_;
  const std::string file_;
  const Target target_;
  const ReadOptions options_;
  const TimePoint deadline_;

  absl::Mutex mutex_;
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  bool again_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  Callback waiter_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::StatusOr<std::shared_ptr<const StripeLayout>>> found_ ABSL_GUARDED_BY(mutex_);

  // Touched by the steps only.
  std::shared_ptr<ManifestFetch> manifest_;
  std::shared_ptr<const StripeLayout> layout_;
  uint64_t next_sru_ = 0;
  uint64_t end_sru_ = 0;
  std::deque<std::shared_ptr<SegmentFetch>> fetches_;  // in the order of the file
  ReadSummary summary_;
  bool ended_ = false;  // and the consumer knows
};

}  // namespace sluice
