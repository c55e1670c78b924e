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
// The cache is bounded by bytes. The least recently used blocks make room, except those that a range waits for. A block
// is read with partial results allowed, by the deadline of the range that came first, or that it was read ahead for,
// and for as long as any range waits for it. Ranges that touch none of its gaps are sound. A block with gaps is kept
// for a second, so that the ranges of one block do not each ask again for bytes that cannot be read.
//
// The first read of a file, or of a version of it, asks again how it is striped. If the file says that it belongs to
// another version than the wanted one, that is an error, and nothing of it is kept. If it does not say so and was
// striped anew, only another shape tells, and the cache then asks again.
class BlockCache {
 public:
  struct Request {
    std::string file;
    uint64_t offset = 0;
    uint32_t length = 0;
    uint32_t more = 0;           // bytes after the range that will be wanted later; the file must have them, too
    uint32_t version = 0;        // checksum of the manifest of the level above; 0: any
    bool up_to_end = false;      // return fewer bytes if the file ends before the range does
    bool allow_partial = false;  // gaps are not an error
    TimePoint deadline;
  };
  struct Range {
    std::string data;                   // zeros where bytes are missing
    std::vector<MissingBytes> missing;  // in order, in offsets of the file
    uint64_t file_bytes = 0;
  };
  // Called once, on any thread, also on the caller's. Errors are those of a read (see BlockReader), and OutOfRange if
  // the file ends before the range, Unavailable or DataLoss for a gap, Unavailable if there is no reader yet,
  // ResourceExhausted if waiting ranges hold all of the cache.
  using Callback = std::function<void(absl::StatusOr<Range>)>;
  class Ticket;  // a requested range
  using TicketPtr = std::shared_ptr<Ticket>;

  // The metrics must outlive the cache.
  BlockCache(ReaderSource reader, uint64_t max_bytes, MidLevelMetrics& metrics);
  // Calls back with Cancelled, on this thread, for ranges that still wait.
  ~BlockCache();

  TicketPtr Read(Request request, Callback callback);
  // The same in two steps, for a caller that needs the ticket before it is called back.
  static TicketPtr Prepare(Request request, Callback callback);
  void Read(const TicketPtr& ticket);  // call it once
  // Calls back with Cancelled, unless the ticket was called back before. A later Read of the ticket does nothing.
  void Cancel(const TicketPtr& ticket);

  // Forgets the blocks of all versions of a file. Ranges that wait still get their bytes.
  void Forget(const std::string& file);

 private:
  class State;

  const std::shared_ptr<State> state_;  // reads under way hold it, too
};

}  // namespace sluice
