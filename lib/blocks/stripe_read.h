#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "sluice/read_stream.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/blocks/manifest_fetch.h"
#include "lib/blocks/reader_core.h"
#include "lib/blocks/segment_fetch.h"
#include "lib/link/timer_queue.h"

namespace sluice {

// A read of a data block or of a whole file: fetches the manifest, then segment after segment with one ahead of the one
// that is handed out, so that the link never waits for the consumer's round trip, and memory is bounded by two of them.
// One a read. Made on any thread, then for the link's thread only; once the reader is gone it holds nothing of the
// link.
//
// Where it goes by a manifest from memory, nothing is handed out before the first bytes are here: the file may have
// been striped anew, and then the read begins again by the new manifest.
class StripeRead final : public std::enable_shared_from_this<StripeRead>, private ManifestFetch::Waiter {
 public:
  // What of the file: a data block by its number, or the one that holds a byte; neither: all of it.
  struct Target {
    std::optional<uint64_t> block;
    std::optional<uint64_t> block_at;  // a byte of the file
  };
  enum class CallOn {
    kCallbackThread,
    kLinkThread,  // for our own callbacks, which are quick: no hop
  };

  // The core outlives its use.
  StripeRead(ReaderCore& core, std::string file, const Target& target, const ReadOptions& options);

  // What the consumer hears in place of a part once the reader is gone. On any thread.
  absl::Status TellGone();

  void Next(ReadStream::Callback callback, CallOn call_on);
  void Cancel(const absl::Status& why);
  void Drop();  // the consumer is gone
  void Pump();  // hands out what is there, and fetches what there is room for

 private:
  using Part = absl::StatusOr<ReadPart>;
  using MaybePart = absl::StatusOr<std::optional<ReadPart>>;

  // ManifestFetch::Waiter.
  void OnLayout(const ManifestFetch::Found& found) override;

  void Step();
  void Answer(Part part);
  void StopFetching();
  void StopWaiting();
  MaybePart Produce();
  absl::Status FindLayout();
  absl::Status Begin();
  absl::Status BeginAgainIfStale();
  absl::StatusOr<std::optional<uint64_t>> BlockOf(const StripeLayout& layout) const;
  absl::Status StartFetches();
  SegmentFetch::Spec NextSegment() const;
  MaybePart TakeFromFront();
  MaybePart HoldBehindHeader(MaybePart part);
  TimePoint BlockDeadline() const;

  ReaderCore& core_;
  const std::string file_;
  const Target target_;
  const ReadOptions options_;
  const TimePoint deadline_;
  std::atomic<bool> ended_ = false;  // and the consumer knows

  bool entered_ = false;
  ReadStream::Callback waiter_;
  CallOn call_on_ = CallOn::kCallbackThread;
  absl::Status stopped_;
  bool pumping_ = false;
  bool again_ = false;

  std::shared_ptr<ManifestFetch> manifest_;  // that is waited for
  TimerQueue::Id timer_;                     // of that
  std::optional<ManifestFetch::Found> found_;
  bool from_memory_ = false;  // the layout
  std::shared_ptr<const StripeLayout> layout_;
  std::optional<ReadHeader> header_;  // not handed out yet
  std::optional<Part> suspect_;       // what came first by a layout from memory, and looks as if that were stale
  std::optional<ReadPart> held_;      // it follows the header
  uint64_t next_sru_ = 0;
  uint64_t end_sru_ = 0;
  std::deque<std::shared_ptr<SegmentFetch>> fetches_;  // in the order of the file
  ReadSummary summary_;
};

}  // namespace sluice
