#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sluice/read_stream.h"

#include "absl/status/statusor.h"
#include "lib/blocks/reader_source.h"
#include "lib/link/clock.h"
#include "lib/telemetry/mid_level_metrics.h"

namespace sluice {

// Data blocks of striped files, for a client that reads a block as many small ranges: the level above, to whom a block
// is an SRU. The first range that is wanted of a block reads all of it, once, and the others wait for their bytes of it
// or find them; a file that is read in order is read one block ahead. One a process; thread-safe; no thread waits in
// it.
//
// Blocks are bounded by bytes; the least recently used ones make room, but not those that a range waits for. A block is
// read with partial results allowed, by the deadline of the range that came first, or that it was read ahead for, and
// for as long as any range waits for it; ranges that touch none of its gaps are sound. A block with gaps is kept for a
// second, so that the many ranges of one block do not each ask again for what cannot be had.
//
// The first read of a file, or of a version of it, asks anew how it is striped. A file that says that it belongs to
// another version than the one that is wanted is an error, and nothing of it is kept. One that does not say so, and was
// striped anew, is told by another shape alone, and is asked for anew then.
class BlockCache {
 public:
  struct Request {
    std::string file;
    uint64_t offset = 0;
    uint32_t length = 0;
    uint32_t more = 0;           // bytes that are wanted behind the range, later; the file has to have them, too
    uint32_t version = 0;        // the checksum of the manifest of the level above; 0: any
    bool up_to_end = false;      // fewer bytes where the file ends before the range does
    bool allow_partial = false;  // gaps are no error
    TimePoint deadline;
  };
  struct Range {
    std::string data;                   // zeros where bytes are missing
    std::vector<MissingBytes> missing;  // in order, in offsets of the file
    uint64_t file_bytes = 0;
  };
  // Once, on any thread, this one included. The errors of a read (see BlockReader), and OutOfRange: the file ends
  // before the range; Unavailable or DataLoss: a gap; Unavailable: no reader yet; ResourceExhausted: the ranges that
  // wait hold all of the cache.
  using Callback = std::function<void(absl::StatusOr<Range>)>;
  class Ticket;  // a range that is wanted
  using TicketPtr = std::shared_ptr<Ticket>;

  // The metrics outlive the cache.
  BlockCache(ReaderSource reader, uint64_t max_bytes, MidLevelMetrics& metrics);
  // Ranges that still wait are Cancelled, on this thread.
  ~BlockCache();

  TicketPtr Read(Request request, Callback callback);
  // The same in two steps, for a caller that has to hold the ticket before it is called back.
  static TicketPtr Prepare(Request request, Callback callback);
  void Read(const TicketPtr& ticket);  // once
  // Calls back with Cancelled, unless it has called back before. Then a Read of the ticket does nothing.
  void Cancel(const TicketPtr& ticket);

  // Forgets the blocks of a file, of all its versions. Ranges that wait get what they wait for.
  void Forget(const std::string& file);

 private:
  class State;

  const std::shared_ptr<State> state_;  // reads under way hold it, too
};

}  // namespace sluice
