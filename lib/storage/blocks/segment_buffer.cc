#include "lib/storage/blocks/segment_buffer.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/storage/stripe/crc32c.h"

namespace sluice {
namespace {

// The size of the chunks that the consumer forwards. They are large, so that the cost of a message does not matter.
// They are small enough for the first bytes of a block to leave while its last bytes still arrive.
constexpr uint64_t kMinChunkBytes = 64 << 10;
constexpr uint64_t kMaxChunkBytes = 1 << 20;

uint64_t BytesIn(const StripeLayout& layout, uint64_t first_sru, uint64_t srus) {
  return std::min(layout.SruOffset(first_sru + srus), layout.FileBytes()) - layout.SruOffset(first_sru);
}

}  // namespace

SegmentBuffer::SegmentBuffer(std::shared_ptr<const StripeLayout> layout, uint64_t first_sru, uint64_t srus)
    : layout_(std::move(layout)),
      first_sru_(first_sru),
      bytes_(BytesIn(*layout_, first_sru, srus)),
      data_(std::make_unique_for_overwrite<char[]>(bytes_)),
      srus_(srus) {}

uint64_t SegmentBuffer::OffsetOf(uint64_t sru) const {
  return BytesIn(*layout_, first_sru_, sru);
}

void SegmentBuffer::Write(uint64_t offset, absl::string_view data) {
  if (!data.empty()) std::memcpy(data_.get() + offset, data.data(), data.size());
}

absl::Status SegmentBuffer::Check(uint64_t sru) const {
  const ByteRange bytes = BytesOf(sru);
  const uint32_t expected = layout_->SruCrc32c(first_sru_ + sru);
  const uint32_t found = Crc32c({data_.get() + bytes.begin, bytes.end - bytes.begin});
  if (found == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("CRC32C is ", absl::Hex(found, absl::kZeroPad8), "; the manifest has ",
                                          absl::Hex(expected, absl::kZeroPad8)));
}

void SegmentBuffer::Settle(uint64_t sru, WorkerKind from) {
  srus_[sru] = {.settled = true, .from = from};
}

void SegmentBuffer::SettleWithGaps(uint64_t sru, WorkerKind from, const ByteRanges& gaps, const absl::Status& why) {
  Settle(sru, from);
  for (const ByteRange& gap : gaps) gaps_[gap.begin] = {.end = gap.end, .why = why};
}

uint64_t SegmentBuffer::ArrivedBytes() const {
  uint64_t bytes = 0;
  for (uint64_t sru = 0; sru < srus_.size(); ++sru) {
    if (srus_[sru].settled) bytes += layout_->SruLength(first_sru_ + sru);
  }
  for (const auto& [begin, gap] : gaps_) bytes -= gap.end - begin;
  return bytes;
}

uint64_t SegmentBuffer::ReadySrus() {
  while (ready_srus_ < srus_.size() && srus_[ready_srus_].settled) ++ready_srus_;
  return ready_srus_;
}

std::optional<ReadPart> SegmentBuffer::Take(LinkMetrics& metrics) {
  if (drained()) return std::nullopt;
  const uint64_t ready = OffsetOf(ReadySrus());
  const auto gap = gaps_.lower_bound(taken_bytes_);
  const uint64_t next_gap = gap == gaps_.end() ? bytes_ : gap->first;
  const uint64_t begin = taken_bytes_;
  if (begin == next_gap && begin < ready) return TakeMissing(ready);
  const uint64_t end = std::min(ready, next_gap);
  const bool more_to_come = ready < bytes_ && ready <= next_gap;
  if (end <= begin || (more_to_come && end - begin < kMinChunkBytes)) return std::nullopt;
  AdvanceTo(std::min(end, begin + kMaxChunkBytes), &metrics);
  return ReadChunk{.offset = layout_->SruOffset(first_sru_) + begin,
                   .data = std::string(data_.get() + begin, taken_bytes_ - begin)};
}

// Merges adjacent gaps that have the same reason.
ReadPart SegmentBuffer::TakeMissing(uint64_t ready) {
  const auto first = gaps_.find(taken_bytes_);
  uint64_t end = first->second.end;
  for (auto gap = std::next(first); gap != gaps_.end() && gap->first == end && end < ready; ++gap) {
    if (gap->second.why.code() != first->second.why.code()) break;
    end = gap->second.end;
  }
  const uint64_t begin = taken_bytes_;
  AdvanceTo(end, /*metrics=*/nullptr);
  return MissingBytes{.offset = layout_->SruOffset(first_sru_) + begin,
                      .length = end - begin,
                      .reason = std::string(first->second.why.message()),
                      .code = first->second.why.code()};
}

// Counts bytes that have arrived; null: they are a gap.
void SegmentBuffer::AdvanceTo(uint64_t offset, LinkMetrics* metrics) {
  while (taken_bytes_ < offset) {
    const uint64_t sru_end = OffsetOf(taken_srus_ + 1);
    const uint64_t to = std::min(offset, sru_end);
    if (metrics != nullptr) metrics->AddGoodput(to - taken_bytes_, srus_[taken_srus_].from);
    taken_bytes_ = to;
    if (to == sru_end) ++taken_srus_;
  }
}

}  // namespace sluice
