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
#include "lib/net/timer_queue.h"
#include "lib/storage/blocks/manifest_fetch.h"
#include "lib/storage/blocks/reader_state.h"
#include "lib/storage/blocks/segment_read.h"

namespace sluice {

// A read of a data block or of a whole file. It fetches the manifest, and then segment after segment. While one segment
// is delivered it fetches the next, so the link never waits for the consumer, and memory is bounded by two segments.
// There is one for each read. It is made on any thread, and then used on the link's thread only. After the end of the
// reader it holds no reference to the link.
//
// If the read uses a manifest from memory, it delivers nothing before the first bytes have arrived. If the file was
// striped again, the read begins again with the new manifest.
class FileRead final : public std::enable_shared_from_this<FileRead>, private ManifestFetch::Waiter {
 public:
  // The part of the file to read: a data block by its number, or the block that holds a byte. If neither is set, all of
  // it.
  struct Target {
    std::optional<uint64_t> block;
    std::optional<uint64_t> block_at;  // a byte of the file
  };
  enum class CallOn {
    kCallbackThread,
    kLinkThread,  // for internal callbacks, which are quick: it saves a hop
  };

  // The state must outlive its use.
  FileRead(ReaderState& state, std::string file, const Target& target, const ReadOptions& options);

  // Returns the error that the consumer receives instead of a part after the end of the reader. Called on any thread.
  absl::Status TellGone();

  void Next(ReadStream::Callback callback, CallOn call_on);
  void Cancel(const absl::Status& why);
  void Drop();  // the consumer is gone
  void Pump();  // delivers the bytes that have arrived, and fetches until there is no room

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
  SegmentRead::Spec NextSegment() const;
  MaybePart TakeFromFront();
  MaybePart HoldBehindHeader(MaybePart part);
  TimePoint BlockDeadline() const;

  ReaderState& state_;
  const std::string file_;
  const Target target_;
  const ReadOptions options_;
  const std::shared_ptr<const Metadata> metadata_;  // null: none
  const TimePoint deadline_;
  std::atomic<bool> ended_ = false;  // the read has ended, and the consumer has received its end

  bool entered_ = false;
  ReadStream::Callback waiter_;
  CallOn call_on_ = CallOn::kCallbackThread;
  absl::Status stopped_;
  bool pumping_ = false;
  bool again_ = false;

  std::shared_ptr<ManifestFetch> manifest_;  // the fetch that the read waits for
  TimerQueue::Id timer_;                     // of the wait
  std::optional<ManifestFetch::Found> found_;
  bool from_memory_ = false;  // layout_ comes from memory
  std::shared_ptr<const StripeLayout> layout_;
  std::optional<ReadHeader> header_;  // not handed out yet
  std::optional<Part> suspect_;       // the first part, if it makes the layout from memory look stale
  std::optional<ReadPart> held_;      // the part that follows the header
  uint64_t next_sru_ = 0;
  uint64_t end_sru_ = 0;
  std::deque<std::shared_ptr<SegmentRead>> fetches_;  // in the order of the file
  ReadSummary summary_;
};

}  // namespace sluice
