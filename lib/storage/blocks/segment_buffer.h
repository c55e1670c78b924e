#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "sluice/read_stream.h"

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/link/link_metrics.h"
#include "lib/storage/blocks/byte_ranges.h"
#include "lib/storage/stripe/stripe_layout.h"

namespace sluice {

// The bytes of consecutive SRUs of one file. They are written as they come, and delivered in order once their SRU is
// settled. SRUs are counted from the first SRU of the buffer, offsets from its first byte. There is one for each
// SegmentRead.
// Not thread-safe.
class SegmentBuffer {
 public:
  // `srus` is 1 or more.
  SegmentBuffer(std::shared_ptr<const StripeLayout> layout, uint64_t first_sru, uint64_t srus);

  uint64_t srus() const { return srus_.size(); }
  uint64_t bytes() const { return bytes_; }
  ByteRange BytesOf(uint64_t sru) const { return {OffsetOf(sru), OffsetOf(sru + 1)}; }

  // Writes bytes of an SRU that is not settled.
  void Write(uint64_t offset, absl::string_view data);
  // Returns DataLoss if the checksum of the SRU differs from the manifest.
  absl::Status Check(uint64_t sru) const;

  bool settled(uint64_t sru) const { return srus_[sru].settled; }
  // The whole SRU has arrived, and was checked.
  void Settle(uint64_t sru, WorkerKind from);
  // The bytes of `gaps` will not come, for the reason `why`. The rest of the SRU has arrived.
  void SettleWithGaps(uint64_t sru, WorkerKind from, const ByteRanges& gaps, const absl::Status& why);

  // Takes the next bytes or gap. Returns nothing while they are still on their way.
  std::optional<ReadPart> Take(LinkMetrics& metrics);
  bool drained() const { return taken_srus_ == srus_.size(); }
  uint64_t ArrivedBytes() const;  // of settled SRUs, without their gaps

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
  void AdvanceTo(uint64_t offset, LinkMetrics* metrics);

  const std::shared_ptr<const StripeLayout> layout_;
  const uint64_t first_sru_;
  const uint64_t bytes_;
  const std::unique_ptr<char[]> data_;
  std::vector<Sru> srus_;
  std::map<uint64_t, Gap> gaps_;  // by their beginning
  uint64_t ready_srus_ = 0;       // the first SRUs that are settled without a break
  uint64_t taken_srus_ = 0;       // SRUs that were taken whole
  uint64_t taken_bytes_ = 0;
};

}  // namespace sluice
