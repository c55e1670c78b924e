#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/read_stream.h"
#include "sluice/v1/sru_service.pb.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/blocks/byte_ranges.h"
#include "lib/blocks/reader_core.h"
#include "lib/blocks/segment_buffer.h"
#include "lib/fan_out/fan_out_run.h"
#include "lib/stripe/stripe_layout.h"

namespace sluice {

struct SruMessage;

// Consecutive SRUs of one file, fetched as one block of the schedule: a data block, or a part of one that is too large
// to be held at once. Each SRU is an ask of a fan-out, which its replicas can answer. What comes is checked against the
// manifest, and handed out in order while later SRUs still arrive. One consumer. It lives until its last call has
// ended; for the link's thread only.
//
// A worker that is an aggregator itself may answer in part, where partial results are allowed: then the other replicas
// are asked for what is missing, and what they do not have either is a gap. Such an SRU cannot be checked as a whole;
// the worker has checked what it sent.
class SegmentFetch final : public FanOutRun::Sink, public std::enable_shared_from_this<SegmentFetch> {
 public:
  struct Spec {
    std::string file;
    std::shared_ptr<const StripeLayout> layout;
    uint64_t first_sru = 0;
    uint64_t srus = 0;  // 1 or more
    bool allow_partial = false;
    TimePoint deadline;
  };

  // ResourceExhausted: the queue is full. InvalidArgument: it can never hold that many calls. `on_progress`: Take may
  // have something new; called not after Cancel.
  static absl::StatusOr<std::shared_ptr<SegmentFetch>> Start(ReaderCore& core, Spec spec,
                                                             std::function<void()> on_progress);

  // The next bytes or gap, nothing where they are still on their way, or the error that ended the fetch.
  absl::StatusOr<std::optional<ReadPart>> Take();
  bool Drained() const { return buffer_.drained(); }  // everything has been taken

  void Cancel();

 private:
  struct Sru {
    uint32_t attempts = 1;
    uint32_t last_attempt = 0;       // that was made
    std::optional<uint32_t> writer;  // the attempt whose bytes come, or came last
    uint32_t received_bytes = 0;     // of those
  };
  // Of an SRU that some worker has answered in part.
  struct Partial {
    ByteRanges missing;              // from the answer that comes
    absl::Status why;                // the first of them is missing
    std::optional<ByteRanges> gaps;  // in all answers that have ended; none: none has
    WorkerKind from = WorkerKind::kPrimary;
  };

  SegmentFetch(ReaderCore& core, Spec spec, std::function<void()> on_progress);
  FanOutRun::Spec RunSpec();
  std::shared_ptr<const std::string> RequestFor(uint64_t sru, size_t worker);
  std::vector<size_t> WorkersOf(uint64_t sru);
  uint32_t ReplicaAt(uint64_t sru, size_t worker) const;
  WorkerKind KindOf(const FanOutLogic::Attempt& made) const;

  // FanOutRun::Sink.
  void Accept(size_t attempt, std::vector<std::string> messages) override;
  absl::Status Complete(size_t attempt) override;
  std::shared_ptr<const std::string> RequestOf(size_t attempt) override;
  void OnAskFailed(const FanOutLogic::Failure& failure) override;
  void OnEnd(FanOutRun& run) override;

  absl::Status Store(size_t attempt, uint64_t index, absl::string_view bytes);
  void StorePartial(uint64_t sru, const SruMessage& message, const ByteRange& place, const ByteRanges& missing);
  absl::Status CompletePartial(const FanOutLogic::Attempt& made, Partial& partial);
  absl::Status Describe(const FanOutLogic::Failure& failure) const;
  void Progress() const;

  ReaderCore& core_;
  const Spec spec_;
  std::function<void()> on_progress_;  // null: cancelled
  SegmentBuffer buffer_;
  v1::ReadSruRequest request_;  // filled in anew for each
  std::vector<Sru> srus_;
  std::map<uint64_t, Partial> partial_;
  std::weak_ptr<FanOutRun> run_;  // until it has ended
  absl::Status status_;
  absl::Status refused_;  // it never began
};

}  // namespace sluice
