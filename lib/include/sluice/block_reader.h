#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/access_record.h"
#include "sluice/link.h"
#include "sluice/read_stream.h"
#include "sluice/tls_options.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice {

class ReaderState;
class ReaderGate;
class FileRead;

// One data block, or a whole file, in memory.
struct Block {
  std::string data;                   // zeros where bytes are missing
  std::vector<MissingBytes> missing;  // empty unless ReadOptions::allow_partial
  ReadSummary summary;
};

// Reads files that are striped over workers (see sluice-stripe) through the schedule of a link. There is one for each
// set of workers; any number may share a link. Thread-safe. The destructor cancels the reads that are under way and
// waits for them; do not call it from a callback.
//
// Errors of every read:
//   NotFound            no such file
//   OutOfRange          no such block
//   InvalidArgument     a bad name, or more calls than the queue can ever hold
//   ResourceExhausted   the queue is full; if the read has begun, its other requests were not sent
//   FailedPrecondition  the file is striped over more workers than the reader has
//   Unavailable         a worker failed and no replica is left
//   DataLoss            a checksum does not match and no replica is left
//   DeadlineExceeded, Cancelled
//
// The reader keeps the manifests of files. If a file was striped again, a read detects it and begins again by itself,
// unless it has already delivered a part.
class BlockReader {
 public:
  struct Options {
    // Addresses, or ranges such as "worker-{0..31}.workers:7000", in the order of the stripe. Entries that need a
    // look-up are refused, because files are striped over places in the list.
    std::vector<std::string> workers;
    // For one response of one worker, from when its request is sent. The time in which the response is ready and waits
    // for the link does not count.
    absl::Duration sru_timeout = absl::Seconds(10);
    absl::Duration block_timeout = absl::Seconds(60);  // for one block, with waiting and retries
    int attempts =
        2;  // maximum number of requests for one SRU: to its replicas in turn, then to the first worker again
    // A stream reads a data block in segments of about this size, and holds at most two of them in memory.
    int64_t segment_bytes = 16 << 20;
    absl::Duration connect_timeout = absl::Seconds(5);  // how long Connect waits
    std::optional<TlsOptions> tls;                      // default: plaintext

    // If an SRU is not ready after this time from its request, the next replica receives the request, too. The first
    // response counts, and the other call is cancelled. Give either a duration above 0, or a quantile between 0 and 1
    // (both excluded) of the times of earlier SRUs. A quantile needs a few SRUs before it hedges. Giving both is an
    // error. Default: no hedges.
    std::optional<absl::Duration> hedge_after;
    std::optional<double> hedge_after_quantile;
    // Maximum share of this reader's requests that are hedges, 0 to 1. A few are allowed at the start.
    double hedge_ratio = 0.1;
    // Called for each request to a worker, for an SRU or a manifest: see FanOut::Options::on_access.
    OnAccessRecord on_access;
  };
  // The largest block that Read takes.
  static constexpr uint64_t kMaxReadBytes = uint64_t{1} << 30;

  // Returns InvalidArgument that names the option, the value and the bound, and the errors of ValidateTls for `tls`.
  static absl::Status Validate(const Options& options);
  static absl::StatusOr<std::unique_ptr<BlockReader>> Create(std::shared_ptr<Link> link, Options options);
  // Creates a reader with different options. Workers that both readers have, with the same TLS options, keep their
  // connections. Reads in progress end on this reader.
  absl::StatusOr<std::unique_ptr<BlockReader>> Successor(Options options) const;
  ~BlockReader();

  // Connects to all workers, and waits for at most connect_timeout. Returns the addresses of the workers that it could
  // not reach, each with Unavailable and the reason. The link continues to try them, and reconnects after every loss.
  // Optional: otherwise the first read connects. Do not call it from a callback.
  std::vector<std::pair<std::string, absl::Status>> Connect();
  // As Connect, but does not wait.
  void ConnectInBackground();

  // Reads one data block, and waits for all of it; do not call it from a callback. Returns FailedPrecondition for a
  // block larger than kMaxReadBytes; Open reads such a block part by part.
  absl::StatusOr<Block> Read(const std::string& file, uint64_t block, const ReadOptions& options = {});

  // Reads a data block, or the whole file if `block` is empty, part by part, in order and in bounded memory.
  std::shared_ptr<ReadStream> Open(const std::string& file, std::optional<uint64_t> block,
                                   const ReadOptions& options = {});
  // Reads the data block that holds the byte at `offset` of the file. The block is not fetched before the consumer has
  // taken its header. OutOfRange if the file ends before `offset`.
  std::shared_ptr<ReadStream> OpenBlockAt(const std::string& file, uint64_t offset, const ReadOptions& options = {});

  // Drops the manifest of a file, so that its next read asks the workers. A failed read does this by itself. Call it
  // after the file was striped again, so that no read fails.
  void ForgetLayout(const std::string& file);

 private:
  explicit BlockReader(std::shared_ptr<Link> link);
  static absl::StatusOr<std::unique_ptr<BlockReader>> Make(std::shared_ptr<Link> link, Options options,
                                                           const ReaderState* before);
  std::shared_ptr<FileRead> NewRead(const std::string& file, std::optional<uint64_t> block,
                                    std::optional<uint64_t> block_at, const ReadOptions& options);

  const std::shared_ptr<Link> link_;
  const std::shared_ptr<ReaderGate> gate_;
  std::unique_ptr<ReaderState> state_;  // used on the link's thread only; null if it was never made
};

}  // namespace sluice
