#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>

#include "sluice/metadata.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice {

struct ReadHeader;

struct ReadOptions {
  // If true, the read continues without SRUs that it cannot get, and reports them as MissingBytes.
  bool allow_partial = false;
  // Time for the whole read; the reader's block_timeout applies to each block as well.
  absl::Duration timeout = absl::InfiniteDuration();
  // Called once the file is known, before any of its bytes are requested, and again if the file turns out to be striped
  // anew. If `admit` returns an error, the read ends with it, and the link carries none of its bytes. The link's
  // thread calls `admit`, until shortly after the stream is dropped. `admit` must not wait. May be null.
  std::function<absl::Status(const ReadHeader& header)> admit = nullptr;
  // Sent to every worker with the requests of this read, such as the trace context of W3C ("traceparent"). If several
  // reads wait for a manifest, its requests have the metadata of the first.
  Metadata metadata = {};
};

// The parts of a read, in this order: one ReadHeader; then ReadChunk and MissingBytes, which together cover the bytes
// from the header's offset without a hole; then one ReadSummary. The header may come as late as the first bytes.
struct ReadHeader {
  uint64_t file_bytes = 0;
  uint64_t offset = 0;       // the beginning of this read in the file
  uint64_t length = 0;       // bytes of this read
  uint64_t block_bytes = 0;  // bytes of a full data block
  uint32_t sru_bytes = 0;
  uint32_t workers = 0;
  uint32_t file_crc32c = 0;  // of the whole file
  // Checksum of the manifest of the level above, if the file is a part of a file of that level. 0: it is not, or that
  // is not known.
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
  // The status with which a read without allow_partial would end.
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

// A read that BlockReader::Open has started. The consumer pulls: the reader fetches at most two segments at a time (see
// BlockReader::Options). Thread-safe, but calls of Next must not overlap. Dropping the last reference cancels the read.
class ReadStream {
 public:
  using Callback = std::function<void(absl::StatusOr<ReadPart>)>;

  virtual ~ReadStream() = default;

  // Calls back once with the next part, or with the error that ended the read. The callback runs where the link's
  // callbacks run (see Link::Options), or on this thread once the reader is gone; it returns soon and does not wait.
  // After the summary or an error the result is FailedPrecondition.
  virtual void Next(Callback callback) = 0;

  // Waits for the next part. Do not call it from a callback.
  virtual absl::StatusOr<ReadPart> Next();

  // Ends the read with Cancelled. Waiting calls are not sent, calls in flight are cancelled.
  virtual void Cancel() = 0;
};

}  // namespace sluice
