#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/link.h"
#include "sluice/read_stream.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice {

class ReaderCore;

// One data block, or a whole file, in memory.
struct Block {
  std::string data;                   // zeros where bytes are missing
  std::vector<MissingBytes> missing;  // only when partial results were allowed
  ReadSummary summary;
};

// Reads files that are striped over workers (see sluice-stripe) through the schedule of a link. One for each set of
// workers; any number may share a link. Thread-safe. The destructor cancels the reads that are under way and waits for
// them; do not call it from a callback.
//
// Errors of every read: NotFound (no such file), OutOfRange (no such block), InvalidArgument (a bad name, more calls
// than the queue can ever hold), ResourceExhausted (the queue is full; of a read that has begun, the rest was not
// sent), FailedPrecondition (the file is striped over more workers than the reader has), DeadlineExceeded, Cancelled,
// Unavailable (a worker failed and no replica is left), DataLoss (a checksum does not match and no replica is left).
class BlockReader {
 public:
  struct Options {
    std::vector<std::string> workers;                  // host:port, in the order of the stripe
    absl::Duration sru_timeout = absl::Seconds(10);    // for one answer of one worker
    absl::Duration block_timeout = absl::Seconds(60);  // for one block, with waiting and retries
    int attempts = 2;                                  // for one SRU; the next one asks the next replica
    // A stream reads a data block larger than this in several goes, and holds at most two goes in memory.
    int64_t segment_bytes = 16 << 20;
    absl::Duration connect_timeout = absl::Seconds(5);  // for Connect
  };

  // InvalidArgument that names the option, the value and the bound.
  static absl::Status Validate(const Options& options);
  static absl::StatusOr<std::unique_ptr<BlockReader>> Create(std::shared_ptr<Link> link, Options options);
  // Another reader, with other options, beside this one. Workers that both have keep their connections, unless the link
  // has another receive window by now. Reads that are under way end on this one.
  absl::StatusOr<std::unique_ptr<BlockReader>> Successor(Options options) const;
  ~BlockReader();

  // Connects to the workers, a few at a time, for at most connect_timeout. Returns the addresses that did not answer;
  // they are tried again, and so is each that is lost later. Optional: without it the first read connects.
  std::vector<std::string> Connect();
  // The same, without waiting.
  void ConnectInBackground();

  // One data block, whole. Blocks the calling thread.
  absl::StatusOr<Block> Read(const std::string& file, uint64_t block, const ReadOptions& options = {});

  // A data block, or the whole file where there is none, part by part in order and in bounded memory.
  std::shared_ptr<ReadStream> Open(const std::string& file, std::optional<uint64_t> block,
                                   const ReadOptions& options = {});
  // The data block that holds the byte at `offset` of the file; it is not asked for before its header was taken.
  // OutOfRange: the file ends before it.
  std::shared_ptr<ReadStream> OpenBlockAt(const std::string& file, uint64_t offset, const ReadOptions& options = {});

  // Forgets how a file is striped; its next read asks for it. That is done by itself where a read fails; a caller may
  // know earlier that the file was striped anew.
  void ForgetLayout(const std::string& file);

 private:
  explicit BlockReader(std::unique_ptr<ReaderCore> core);

  std::unique_ptr<ReaderCore> core_;
};

}  // namespace sluice
