#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "lib/storage/blocks/block_cache.h"
#include "lib/storage/blocks/block_store.h"

namespace sluice {

// A requested range of a BlockCache: the part that has arrived, and the block that it waits for. There is one for each
// Read. Guarded by the lock of the cache.
class BlockCache::Ticket {
 public:
  Ticket(Request wanted, Callback then) : request(std::move(wanted)), callback(std::move(then)) {}

  // Returns the end of the range in a file of this size, or an error if it is out of bounds.
  absl::StatusOr<uint64_t> EndIn(uint64_t file_bytes) const;
  // The offset in the file of the next missing byte.
  uint64_t at() const { return request.offset + range.data.size(); }
  // An offset in the block whose read shows how the file is striped: the last block for a range that may be empty at
  // the end of the file.
  uint64_t opens_at() const { return request.offset - (request.up_to_end && request.offset > 0 ? 1 : 0); }
  // Whether the range looks up a block for the first time. It looks up a block again after it has waited for it.
  bool FirstLookAt(uint64_t block_offset);
  // Whether the range can wait long enough beyond the block's deadline that a second read of the block is worth it.
  bool MayWaitLongerThan(const CachedBlock& block) const;
  // Appends the next settled bytes of a block, up to `until`, and the gaps among them.
  void Append(const CachedBlock& block, uint64_t until);

  const Request request;
  Callback callback;                       // null after it was called
  Range range;                             // the part that has arrived
  std::shared_ptr<CachedBlock> waits_for;  // null if it waits for nothing
  std::optional<uint64_t> looked_up;       // the offset up to which it has looked up blocks
};

}  // namespace sluice
