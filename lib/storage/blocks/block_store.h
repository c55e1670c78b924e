#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sluice/read_stream.h"

#include "absl/container/flat_hash_map.h"
#include "lib/net/clock.h"
#include "lib/storage/blocks/block_cache.h"
#include "lib/storage/blocks/mid_level_metrics.h"

namespace sluice {

using FileVersion = std::pair<std::string, uint32_t>;

// A block of a BlockCache, complete or on its way. Guarded by the lock of the cache, except for the bytes: the thread
// that handles the parts of the stream writes them, and others read them up to `settled`.
struct CachedBlock {
  FileVersion file;
  uint64_t offset = 0;  // in the file
  uint64_t length = 0;  // 0: unknown, like the stripe layout of the file
  std::unique_ptr<char[]> data;
  uint64_t settled = 0;            // bytes from the beginning that have arrived, or never will
  std::vector<MissingBytes> gaps;  // in order
  bool late = false;               // a gap came after the deadline
  bool read_ahead = false;         // read ahead, and not requested yet

  std::shared_ptr<ReadStream> stream;  // null after its end
  TimePoint deadline;                  // of the stream
  TimePoint ended;
  std::vector<BlockCache::TicketPtr> waiters;
  size_t held = 0;  // number of callers that are about to wait for the block, or to read it
  std::list<std::shared_ptr<CachedBlock>>::iterator position;  // in BlockStore::by_use_, if the length is known

  uint64_t end() const { return offset + length; }
  // The first gap with bytes of [begin, end); null if there is none.
  const MissingBytes* GapIn(uint64_t begin, uint64_t end) const;
  // True if the block has kept its gaps for long enough.
  bool IsStale() const;
  // Removes and returns the waiters. Waiters whose deadline is at most the deadline of this read come first. Then comes
  // the waiter with the latest deadline, so that the others join the read that it begins.
  std::vector<BlockCache::TicketPtr> TakeWaiters();
};

// The stripe layout of a file. Exists while the cache holds blocks of the file.
struct CachedFile {
  FileVersion name;
  uint64_t bytes = 0;
  uint64_t block_bytes = 0;                                 // 0 if not known
  std::shared_ptr<CachedBlock> opening;                     // the read that fetches the layout
  std::map<uint64_t, std::shared_ptr<CachedBlock>> blocks;  // by offset

  uint64_t BlockLength(uint64_t offset) const { return std::min(block_bytes, bytes - offset); }
};

// The blocks of a BlockCache and their memory. The least recently used blocks are dropped when there is no room. There
// is one for each cache, guarded by its lock.
class BlockStore {
 public:
  // Streams of dropped blocks, which the caller cancels without the lock.
  using Streams = std::vector<std::shared_ptr<ReadStream>>;

  BlockStore(uint64_t max_bytes, MidLevelMetrics& metrics) : max_bytes_(max_bytes), metrics_(metrics) {}

  uint64_t max_bytes() const { return max_bytes_; }
  std::shared_ptr<CachedFile> File(const FileVersion& name);
  std::vector<std::shared_ptr<CachedBlock>> All() const;

  // Returns false if the blocks with waiters and the held blocks leave no room. A block that is larger than the cache
  // fits alone.
  bool MakeRoom(uint64_t bytes, Streams& dropped);
  void Enter(const std::shared_ptr<CachedFile>& file, const std::shared_ptr<CachedBlock>& block, uint64_t length);
  void Use(CachedBlock& block);
  // Drops a block and its stream. Takes the pointer by value, because the caller's reference may be to a member.
  void Drop(std::shared_ptr<CachedBlock> block, Streams& dropped);

 private:
  void AddBytes(int64_t bytes);

  const uint64_t max_bytes_;
  MidLevelMetrics& metrics_;
  absl::flat_hash_map<FileVersion, std::shared_ptr<CachedFile>> files_;
  std::list<std::shared_ptr<CachedBlock>> by_use_;  // the last used one first
  uint64_t used_bytes_ = 0;
};

}  // namespace sluice
