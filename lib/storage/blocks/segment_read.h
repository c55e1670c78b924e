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
#include "lib/fan_out/fan_out_run.h"
#include "lib/storage/blocks/byte_ranges.h"
#include "lib/storage/blocks/reader_state.h"
#include "lib/storage/blocks/segment_buffer.h"
#include "lib/storage/stripe/stripe_layout.h"

namespace sluice {

struct SruMessage;

// Fetches consecutive SRUs of one file as one block of the schedule: a data block, or a part of a block that is too
// large to hold at once. Each SRU is an ask of a fan-out, which its replicas can answer. The bytes are checked against
// the manifest, and delivered in order while later SRUs still arrive. There is one for each segment. It lives until its
// last call has ended. Used on the link's thread only.
//
// If partial results are allowed, a worker that is an aggregator itself may respond in part. The other replicas are
// then asked for the missing bytes. Bytes that no replica has are a gap. Such an SRU cannot be checked as
// a whole; the worker has checked the bytes that it sent.
class SegmentRead final : public FanOutRun::Sink, public std::enable_shared_from_this<SegmentRead> {
 public:
  struct Spec {
    std::string file;
    std::shared_ptr<const StripeLayout> layout;
    uint64_t first_sru = 0;
    uint64_t srus = 0;  // 1 or more
    bool allow_partial = false;
    std::shared_ptr<const Metadata> metadata;  // may be null
    TimePoint deadline;
  };

  // Returns ResourceExhausted if the queue is full, InvalidArgument if it can never hold that many calls. `on_progress`
  // is called when Take may have something new, and not after Cancel.
  static absl::StatusOr<std::shared_ptr<SegmentRead>> Start(ReaderState& state, Spec spec,
                                                            std::function<void()> on_progress);

  // Takes the next bytes or gap. Returns nothing while they are still on their way, or the error that ended the fetch.
  absl::StatusOr<std::optional<ReadPart>> Take();
  bool Drained() const { return buffer_.drained(); }  // everything was taken

  void Cancel();

 private:
  struct Sru {
    uint32_t attempts = 1;
    uint32_t last_attempt = 0;       // the last attempt that was made
    std::optional<uint32_t> writer;  // the attempt whose bytes come, or came last
    uint32_t received_bytes = 0;     // bytes of the writer
  };
  // The state of an SRU with a partial response.
  struct Partial {
    ByteRanges missing;              // missing in the current response
    absl::Status why;                // the reason of the first missing range
    std::optional<ByteRanges> gaps;  // missing in all ended responses; nullopt before the first end
    WorkerKind from = WorkerKind::kPrimary;
  };

  SegmentRead(ReaderState& state, Spec spec, std::function<void()> on_progress);
  FanOutRun::Spec RunSpec();
  std::shared_ptr<const std::string> RequestFor(uint64_t sru, size_t worker);
  std::vector<size_t> WorkersOf(uint64_t sru);
  uint32_t ReplicaAt(uint64_t sru, size_t worker) const;
  WorkerKind KindOf(const Attempt& made) const;

  // FanOutRun::Sink.
  void Accept(size_t attempt, std::vector<WireMessage> messages) override;
  absl::Status Complete(size_t attempt) override;
  std::shared_ptr<const std::string> RequestOf(size_t attempt) override;
  void OnAskFailed(const FanOutLogic::Failure& failure) override;
  void OnEnd(FanOutRun& run) override;

  absl::Status Store(size_t attempt, uint64_t index, absl::string_view bytes);
  void StorePartial(uint64_t sru, const SruMessage& message, const ByteRange& place, const ByteRanges& missing);
  absl::Status CompletePartial(const Attempt& made, Partial& partial);
  absl::Status Describe(const FanOutLogic::Failure& failure) const;
  void Progress() const;

  ReaderState& state_;
  const Spec spec_;
  std::function<void()> on_progress_;  // null after Cancel
  SegmentBuffer buffer_;
  v1::ReadSruRequest request_;  // filled in again for each SRU
  std::vector<Sru> srus_;
  std::map<uint64_t, Partial> partial_;
  std::weak_ptr<FanOutRun> run_;  // null after its end
  absl::Status status_;
  absl::Status refused_;  // not OK if the fetch never began
};

}  // namespace sluice
