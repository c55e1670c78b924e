#include "lib/storage/blocks/block_cache_ticket.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "lib/net/clock.h"

namespace sluice {
namespace {

// With less time than this, no further bytes would arrive, and the bytes that have arrived would be lost at the
// deadline.
constexpr auto kWorthAnotherRead = std::chrono::milliseconds(10);

}  // namespace

absl::StatusOr<uint64_t> BlockCache::Ticket::EndIn(uint64_t file_bytes) const {
  const uint64_t wanted = uint64_t{request.length} + request.more;
  const bool within = request.offset <= file_bytes && wanted <= file_bytes - request.offset;
  if (within) return request.offset + request.length;
  if (request.up_to_end && request.offset <= file_bytes) return file_bytes;
  return absl::OutOfRangeError(absl::StrCat("file \"", request.file, "\" has ", file_bytes, " bytes; wanted ", wanted,
                                            " from ", request.offset));
}

bool BlockCache::Ticket::FirstLookAt(uint64_t block_offset) {
  if (looked_up >= block_offset) return false;
  looked_up = block_offset;
  return true;
}

bool BlockCache::Ticket::MayWaitLongerThan(const CachedBlock& block) const {
  return request.deadline > std::max(block.deadline, Now() + kWorthAnotherRead);
}

void BlockCache::Ticket::Append(const CachedBlock& block, uint64_t until) {
  const uint64_t begin = at();
  range.data.append(block.data.get() + (begin - block.offset), until - begin);
  for (const MissingBytes& gap : block.gaps) {
    const uint64_t gap_begin = std::max(gap.offset, begin);
    const uint64_t gap_end = std::min(gap.offset + gap.length, until);
    if (gap_begin >= gap_end) continue;
    MissingBytes& missing = range.missing.emplace_back(gap);
    missing.offset = gap_begin;
    missing.length = gap_end - gap_begin;
  }
}

}  // namespace sluice
