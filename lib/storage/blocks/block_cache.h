#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sluice/read_stream.h"

#include "absl/status/statusor.h"
#include "lib/net/clock.h"
#include "lib/storage/blocks/mid_level_metrics.h"
#include "lib/storage/blocks/reader_source.h"

namespace sluice {

// Data blocks of striped files, for the level above, which reads a block as an SRU, piece by piece. The first requested
// range of a block reads the whole block, once. Other ranges wait for their bytes of it, or find them in the cache.
// A file that is read in order is read one block ahead. There is one for each process. Thread-safe; no thread waits in
// it.
//
// The cache is bounded by bytes. To make room, it drops the least recently used block that no range waits for. A block
// is read with partial results allowed. Its deadline is the deadline of its first range, or of the range that caused it
// to be read ahead. The read continues while any range waits for it. A range that touches no gap of its block is
// complete. A block with gaps is kept for a second, so that its ranges do not all request bytes that cannot be read.
//
// The first read of a file, or of a version of it, fetches the manifest again. If the file states that it belongs to a
// different version than the requested one, that is an error, and the cache keeps nothing of it. If it states no
// version and was striped again, only a different shape shows this; the cache then fetches the manifest again.
class BlockCache {
 public:
  struct Request {
    std::string file;
    uint64_t offset = 0;
    uint32_t length = 0;
    uint32_t more = 0;           // bytes after the range that will be requested later; the file must have them, too
    uint32_t version = 0;        // checksum of the manifest of the level above; 0: any
    bool up_to_end = false;      // return fewer bytes if the file ends before the range does
    bool allow_partial = false;  // gaps are not an error
    Metadata metadata;           // sent to the workers if this range begins the read of a block
    TimePoint deadline;
  };
  struct Range {
    std::string data;                   // zeros where bytes are missing
    std::vector<MissingBytes> missing;  // in order, in offsets of the file
    uint64_t file_bytes = 0;
  };
  // Called once, on any thread, possibly the caller's. Besides the errors of a read (see BlockReader), it receives
  // OutOfRange if the file ends before the range, Unavailable or DataLoss for a gap, Unavailable if there is no reader
  // yet, and ResourceExhausted if waiting ranges hold the whole cache.
  using Callback = std::function<void(absl::StatusOr<Range>)>;
  class Ticket;  // a requested range
  using TicketPtr = std::shared_ptr<Ticket>;

  // The metrics must outlive the cache.
  BlockCache(ReaderSource reader, uint64_t max_bytes, MidLevelMetrics& metrics);
  // Calls back with Cancelled, on this thread, for ranges that still wait.
  ~BlockCache();

  TicketPtr Read(Request request, Callback callback);
  // Read in two steps, for a caller that needs the ticket before the callback.
  static TicketPtr Prepare(Request request, Callback callback);
  void Read(const TicketPtr& ticket);  // call it once
  // Calls back with Cancelled, unless the ticket was called back before. A later Read of the ticket does nothing.
  void Cancel(const TicketPtr& ticket);

  // Drops the blocks of all versions of a file. Waiting ranges still get their bytes.
  void Forget(const std::string& file);

 private:
  class State;

  const std::shared_ptr<State> state_;  // reads in progress hold it, too
};

}  // namespace sluice
