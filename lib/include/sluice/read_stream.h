#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice {

struct ReadOptions {
  // Go on without the SRUs that cannot be had; they are reported as MissingBytes.
  bool allow_partial = false;
  // For the whole read, on top of the reader's block_timeout for each block.
  absl::Duration timeout = absl::InfiniteDuration();
};

// The parts of a read, in this order: one ReadHeader; then ReadChunk and MissingBytes, which follow each other without
// gaps from the header's offset; then one ReadSummary. The header may come as late as the first bytes.
struct ReadHeader {
  uint64_t file_bytes = 0;
  uint64_t offset = 0;       // in the file, of this read
  uint64_t length = 0;       // of this read
  uint64_t block_bytes = 0;  // of a full data block
  uint32_t sru_bytes = 0;
  uint32_t workers = 0;
  uint32_t file_crc32c = 0;  // of the whole file
  // Where the file is a part of one of the level above: of the manifest of that. 0: it is not, or that is not known.
  uint32_t upper_manifest_crc32c = 0;
};
struct ReadChunk {
  uint64_t offset = 0;  // in the file
  std::string data;     // not empty; at most 1 MiB
};
struct MissingBytes {
  uint64_t offset = 0;
  uint64_t length = 0;
  std::string reason;
  // What a read that has to be whole would end with.
  absl::StatusCode code = absl::StatusCode::kUnavailable;
};
struct ReadSummary {
  uint64_t bytes_read = 0;
  uint64_t bytes_wanted = 0;

  double Coverage() const {
    return bytes_wanted == 0 ? 1 : static_cast<double>(bytes_read) / static_cast<double>(bytes_wanted);
  }
};
using ReadPart = std::variant<ReadHeader, ReadChunk, MissingBytes, ReadSummary>;

// One read under way, from BlockReader::Open. The consumer pulls: what it does not ask for is not fetched, apart from
// two goes ahead. Thread-safe, but one Next at a time. Dropping the last reference cancels the read.
class ReadStream {
 public:
  using Callback = std::function<void(absl::StatusOr<ReadPart>)>;

  virtual ~ReadStream() = default;

  // Calls back once with the next part or the error that ended the read, where the link calls back (see Link::Options):
  // return soon, and do not wait in the callback. Once the reader is gone it calls back on this thread. After the
  // summary or an error: FailedPrecondition.
  virtual void Next(Callback callback) = 0;

  // The same, and waits for it. Not from a callback.
  virtual absl::StatusOr<ReadPart> Next();

  // Ends the read with Cancelled; what waits is not sent, what is in flight is cancelled.
  virtual void Cancel() = 0;
};

}  // namespace sluice
