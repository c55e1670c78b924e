#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/read_stream.h"

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "lib/blocks/byte_ranges.h"
#include "lib/blocks/reader_core.h"
#include "lib/rpc/call_group.h"
#include "lib/stripe/stripe_layout.h"

namespace sluice {

// A run of SRUs of one file, fetched as one block of the schedule: a data block, or a part of one that is too large to
// be held at once. Asks the next replica when a worker fails, checks every SRU against the manifest, and hands the
// bytes out in order while later ones still arrive. Lives until its last call has ended. Thread-safe; one consumer.
//
// A worker that is an aggregator itself may answer in part, where partial results are allowed: then the other replicas
// are asked for what is missing, and what they do not have either is a gap. Such an SRU cannot be checked as a whole;
// the worker has checked what it sent.
class SegmentFetch : public std::enable_shared_from_this<SegmentFetch> {
 public:
  struct Spec {
    std::string file;
    std::shared_ptr<const StripeLayout> layout;
    uint64_t first_sru = 0;
    uint64_t srus = 0;  // 1 or more
    bool allow_partial = false;
    TimePoint deadline;
  };

  // The errors of CallGroup::Start. `on_progress`, on any thread: Take may have something new.
  static absl::StatusOr<std::shared_ptr<SegmentFetch>> Start(ReaderCore& core, Spec spec,
                                                             std::function<void()> on_progress);

  // The next bytes or gap, nothing where they are still on their way, or the error that ended the fetch.
  absl::StatusOr<std::optional<ReadPart>> Take();
  bool Drained() const;  // everything has been taken

  void Cancel();

 private:
  struct Sru {
    bool settled = false;  // verified, or a gap, or has gaps
    bool partial = false;  // some of it is a gap; then it cannot be verified
    bool from_replica = false;
    int open_ranges = 0;
    int attempt = 0;  // of the SRU as a whole; its ranges may have been tried more often
  };
  // A part of an SRU, asked of one replica.
  struct Range {
    uint64_t sru = 0;     // counted from the first of the segment
    uint64_t offset = 0;  // in the SRU
    uint32_t length = 0;
    int attempt = 0;
    // What no attempt has brought, in the segment. None: no worker has answered in part.
    std::optional<ByteRanges> missing;
  };
  struct Gap {
    uint64_t end = 0;
    absl::Status why;
  };

  SegmentFetch(ReaderCore& core, Spec spec, std::function<void()> on_progress);
  std::vector<GroupCall> PlanCalls() ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<Range> RangesOf(uint64_t sru, int attempt) const;
  GroupCall CallFor(Range range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint32_t ReplicaFor(const Range& range) const;
  uint32_t WorkerFor(const Range& range) const;
  uint64_t SruLength(uint64_t sru) const;
  uint64_t OffsetInSegment(uint64_t sru) const;

  absl::Status OnAnswer(CallGroup& group, size_t tag, absl::StatusOr<grpc::ByteBuffer> answer);
  void OnMessage(size_t tag, grpc::ByteBuffer& message);
  absl::StatusOr<ByteRanges> Store(const Range& range, std::vector<grpc::ByteBuffer>& messages, absl::Status& why);
  void OnPartialAnswer(CallGroup& group, Range range, const ByteRanges& missing, const absl::Status& why);
  absl::Status CheckSru(uint64_t sru) const;
  absl::Status OnRangeStored(const Range& range);
  void OnRangeFailed(CallGroup& group, Range range, const absl::Status& why, bool whole_sru);
  bool MayRetry(const Range& range, const absl::Status& why) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUp(const Range& range, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaveGaps(const Range& range, const absl::Status& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddGap(const ByteRange& bytes, const absl::Status& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Describe(const Range& range, const absl::Status& why) const;
  void OnEnd();
  uint64_t ArrivedBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  uint64_t ReadySrus() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ReadPart TakeMissing(uint64_t ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AdvanceTo(uint64_t offset_in_segment, bool arrived) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ReaderCore& core_;
  const Spec spec_;
  const std::function<void()> on_progress_;
  const TimePoint started_;
  const int64_t range_bytes_;

  // Ranges of different SRUs, and of one, never overlap, so their bytes are written without the lock; a range is read
  // only after its SRU was verified under it.
  const uint64_t bytes_;
  const std::unique_ptr<char[]> data_;

  mutable absl::Mutex mutex_;
  std::vector<Sru> srus_ ABSL_GUARDED_BY(mutex_);
  std::vector<Range> ranges_ ABSL_GUARDED_BY(mutex_);  // by tag of their calls
  std::map<size_t, std::vector<grpc::ByteBuffer>> messages_
      ABSL_GUARDED_BY(mutex_);                            // of streams, by tag of their calls
  std::map<uint64_t, Gap> gaps_ ABSL_GUARDED_BY(mutex_);  // by their beginning in the segment; of settled SRUs
  std::shared_ptr<CallGroup> group_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t taken_srus_ ABSL_GUARDED_BY(mutex_) = 0;   // that are taken whole
  uint64_t taken_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of the segment
};

}  // namespace sluice
