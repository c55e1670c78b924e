#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "lib/blocks/block_cache.h"
#include "lib/blocks/cached_blocks.h"

namespace sluice {

// A range that is wanted of a BlockCache: how far it has come, and what it waits for. One a call of Read. Guarded by
// the lock of the cache.
class BlockCache::Ticket {
 public:
  Ticket(Request wanted, Callback then) : request(std::move(wanted)), callback(std::move(then)) {}

  // Where the range ends in a file of this size, or why it is out of its bounds.
  absl::StatusOr<uint64_t> EndIn(uint64_t file_bytes) const;
  // Of the next byte that has not come, in the file.
  uint64_t at() const { return request.offset + range.data.size(); }
  // Of the block that tells how the file is striped: the last one for a range that may be empty at the end of the file.
  uint64_t opens_at() const { return request.offset - (request.up_to_end && request.offset > 0 ? 1 : 0); }
  // Whether it has not looked at a block before: it looks again at one that it has waited for.
  bool FirstLookAt(uint64_t block_offset);
  // By so much that it is worth to read the block anew.
  bool MayWaitLongerThan(const CachedBlock& block) const;
  // The next bytes, of a block where they are settled, and the gaps among them.
  void Append(const CachedBlock& block, uint64_t until);

  const Request request;
  Callback callback;                       // null: it has been called
  Range range;                             // as far as it has come
  std::shared_ptr<CachedBlock> waits_for;  // null: for nothing
  std::optional<uint64_t> looked_up;       // up to which offset of blocks
};

}  // namespace sluice
