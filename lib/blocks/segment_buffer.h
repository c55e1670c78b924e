#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "sluice/read_stream.h"

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/blocks/byte_ranges.h"
#include "lib/stripe/stripe_layout.h"
#include "lib/telemetry/aggregator_metrics.h"

namespace sluice {

// The bytes of consecutive SRUs of one file: written as they come, handed out in order once their SRU is settled. SRUs
// are counted from the first one here, offsets from its first byte. One a SegmentFetch; not thread-safe.
class SegmentBuffer {
 public:
  // `srus`: 1 or more.
  SegmentBuffer(std::shared_ptr<const StripeLayout> layout, uint64_t first_sru, uint64_t srus);

  uint64_t srus() const { return srus_.size(); }
  uint64_t bytes() const { return bytes_; }
  ByteRange BytesOf(uint64_t sru) const { return {OffsetOf(sru), OffsetOf(sru + 1)}; }

  // Of an SRU that is not settled.
  void Write(uint64_t offset, absl::string_view data);
  // DataLoss: what is here of the SRU is not what was striped.
  absl::Status Check(uint64_t sru) const;

  bool settled(uint64_t sru) const { return srus_[sru].settled; }
  // All of it is here, and was checked.
  void Settle(uint64_t sru, WorkerKind from);
  // These bytes of it cannot be had, and why; the rest is here.
  void SettleWithGaps(uint64_t sru, WorkerKind from, const ByteRanges& gaps, const absl::Status& why);

  // The next bytes or gap; nothing where they are still on their way.
  std::optional<ReadPart> Take(AggregatorMetrics& metrics);
  bool drained() const { return taken_srus_ == srus_.size(); }
  uint64_t ArrivedBytes() const;  // of SRUs that are settled, without their gaps

 private:
  struct Sru {
    bool settled = false;
    WorkerKind from = WorkerKind::kPrimary;
  };
  struct Gap {
    uint64_t end = 0;
    absl::Status why;
  };

  uint64_t OffsetOf(uint64_t sru) const;
  uint64_t ReadySrus();
  ReadPart TakeMissing(uint64_t ready);
  void AdvanceTo(uint64_t offset, AggregatorMetrics* metrics);

  const std::shared_ptr<const StripeLayout> layout_;
  const uint64_t first_sru_;
  const uint64_t bytes_;
  const std::unique_ptr<char[]> data_;
  std::vector<Sru> srus_;
  std::map<uint64_t, Gap> gaps_;  // by their beginning
  uint64_t ready_srus_ = 0;       // one past the settled ones that follow those taken
  uint64_t taken_srus_ = 0;       // that are taken whole
  uint64_t taken_bytes_ = 0;
};

}  // namespace sluice
