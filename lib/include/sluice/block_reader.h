#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/link.h"
#include "sluice/read_stream.h"
#include "sluice/tls_options.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice {

class ReaderCore;
class ReaderGate;
class StripeRead;

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
//
// The reader remembers how files are striped. Where a file was striped anew, a read finds that out and begins again by
// itself, unless it has handed something out before.
class BlockReader {
 public:
  struct Options {
    // host:port or a range "worker-{0..31}.workers:7000", in the order of the stripe. What has to be looked up first
    // is not for a reader: files are striped over places in the list.
    std::vector<std::string> workers;
    absl::Duration sru_timeout = absl::Seconds(10);    // for one answer of one worker, from when it is asked
    absl::Duration block_timeout = absl::Seconds(60);  // for one block, with waiting and retries
    int attempts = 2;  // maximum number of workers asked for one SRU: its replicas, and then again the first of them
    // A stream reads a data block larger than this in several steps, and holds at most two of them in memory.
    int64_t segment_bytes = 16 << 20;
    absl::Duration connect_timeout = absl::Seconds(5);  // for Connect
    std::optional<TlsOptions> tls;                      // none: plaintext

    // When an SRU is not ready this long after its request, the next replica is asked, too; the first of the two to
    // answer counts, the other is cancelled. Either a duration above 0, or a quantile between 0 and 1 (both excluded)
    // of the times that SRUs took before; a quantile hedges nothing until it has seen some. Not both. Default: no
    // hedges.
    std::optional<absl::Duration> hedge_after;
    std::optional<double> hedge_after_quantile;
    // Hedges of this reader are at most this share of its requests, with a few to begin with. 0 to 1.
    double hedge_ratio = 0.1;
  };
  // Read refuses a block that is larger.
  static constexpr uint64_t kMaxReadBytes = uint64_t{1} << 30;

  // InvalidArgument that names the option, the value and the bound; of `tls` also what ValidateTls says.
  static absl::Status Validate(const Options& options);
  static absl::StatusOr<std::unique_ptr<BlockReader>> Create(std::shared_ptr<Link> link, Options options);
  // Another reader, with other options, beside this one. Workers that both have, with the same TLS options, keep their
  // connections. Reads that are under way end on this one.
  absl::StatusOr<std::unique_ptr<BlockReader>> Successor(Options options) const;
  ~BlockReader();

  // Connects to the workers, a few at a time, for at most connect_timeout. Returns the addresses that did not answer;
  // they are tried again, and so is each that is lost later. Optional: without it the first read connects.
  std::vector<std::string> Connect();
  // The same, without waiting.
  void ConnectInBackground();

  // One data block, whole. Blocks the calling thread; not for callbacks. FailedPrecondition: the block is larger than
  // kMaxReadBytes; Open reads it part by part.
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
  explicit BlockReader(std::shared_ptr<Link> link);
  static absl::StatusOr<std::unique_ptr<BlockReader>> Make(std::shared_ptr<Link> link, Options options,
                                                           const ReaderCore* before);
  std::shared_ptr<StripeRead> NewRead(const std::string& file, std::optional<uint64_t> block,
                                      std::optional<uint64_t> block_at, const ReadOptions& options);

  const std::shared_ptr<Link> link_;
  const std::shared_ptr<ReaderGate> gate_;
  std::unique_ptr<ReaderCore> core_;  // for the link's thread; null: it was never made
};

}  // namespace sluice
