#include "sluice/block_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/blocks/reader_core.h"
#include "lib/blocks/sru_ranges.h"
#include "lib/blocks/stripe_stream.h"

namespace sluice {
namespace {

constexpr int kMaxAttempts = 100;
constexpr int64_t kMaxSegmentBytes = int64_t{1} << 30;

absl::Status CheckTimeout(const char* name, absl::Duration timeout) {
  if (timeout > absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", absl::FormatDuration(timeout), "; it must be above 0"));
}

absl::Status CheckRange(const char* name, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, "; it must be between 1 and ", most));
}

// Collects the parts of a stream; gaps stay zeros.
absl::StatusOr<Block> Collect(ReadStream& stream) {
  Block block;
  uint64_t begin = 0;
  while (true) {
    absl::StatusOr<ReadPart> part = stream.Next();
    if (!part.ok()) return part.status();
    if (const auto* header = std::get_if<ReadHeader>(&*part)) {
      begin = header->offset;
      block.data.resize(header->length);
    } else if (const auto* chunk = std::get_if<ReadChunk>(&*part)) {
      block.data.replace(chunk->offset - begin, chunk->data.size(), chunk->data);
    } else if (auto* missing = std::get_if<MissingBytes>(&*part)) {
      block.missing.push_back(std::move(*missing));
    } else {
      block.summary = std::get<ReadSummary>(*part);
      return block;
    }
  }
}

// No answer is larger than a range; gRPC refuses one that is far larger by its header, and takes none of it. Each range
// is charged in full, so the receive windows of these connections need no bound. With one, a mid-level aggregator,
// whose ranges all come over one connection, had one on the way at a time: 80 to 85 Mbps of 100.
WorkerChannels ChannelsOf(Link& link, const BlockReader::Options& options, const WorkerChannels* before) {
  return WorkerChannels(options.workers, link.driver().workers(),
                        {.may_hold = link.schedule_options().discipline == Discipline::kGrants,
                         .max_response_bytes = static_cast<int>(4 * kMaxRangeBytes)},
                        before);
}

}  // namespace

absl::Status BlockReader::Validate(const Options& options) {
  absl::Status status = CheckTimeout("sru_timeout", options.sru_timeout);
  status.Update(CheckTimeout("block_timeout", options.block_timeout));
  status.Update(CheckTimeout("connect_timeout", options.connect_timeout));
  status.Update(CheckRange("attempts", options.attempts, kMaxAttempts));
  status.Update(CheckRange("segment_bytes", options.segment_bytes, kMaxSegmentBytes));
  status.Update(WorkerChannels::Validate(options.workers));
  return status;
}

absl::StatusOr<std::unique_ptr<BlockReader>> BlockReader::Create(std::shared_ptr<Link> link, Options options) {
  if (!link) return absl::InvalidArgumentError("link is null; create one with Link::Create");
  if (absl::Status valid = Validate(options); !valid.ok()) return valid;
  WorkerChannels channels = ChannelsOf(*link, options, nullptr);
  auto core = std::make_unique<ReaderCore>(std::move(link), std::move(channels), std::move(options));
  return std::unique_ptr<BlockReader>(new BlockReader(std::move(core)));
}

absl::StatusOr<std::unique_ptr<BlockReader>> BlockReader::Successor(Options options) const {
  if (absl::Status valid = Validate(options); !valid.ok()) return valid;
  std::shared_ptr<Link> link = core_->fan_out().shared_link();
  WorkerChannels channels = ChannelsOf(*link, options, &core_->channels());
  auto core = std::make_unique<ReaderCore>(std::move(link), std::move(channels), std::move(options));
  if (core_->fan_out().keeper().keeps_all()) core->fan_out().keeper().KeepAll();
  return std::unique_ptr<BlockReader>(new BlockReader(std::move(core)));
}

BlockReader::BlockReader(std::unique_ptr<ReaderCore> core) : core_(std::move(core)) {}
BlockReader::~BlockReader() = default;

std::vector<std::string> BlockReader::Connect() {
  std::vector<std::string> unconnected;
  for (size_t worker : core_->fan_out().Connect(core_->options().connect_timeout)) {
    unconnected.push_back(core_->channels().address(worker));
  }
  return unconnected;
}

void BlockReader::ConnectInBackground() {
  core_->fan_out().keeper().KeepAll();
}

absl::StatusOr<Block> BlockReader::Read(const std::string& file, uint64_t block, const ReadOptions& options) {
  return Collect(*Open(file, block, options));
}

std::shared_ptr<ReadStream> BlockReader::Open(const std::string& file, std::optional<uint64_t> block,
                                              const ReadOptions& options) {
  return std::make_shared<StripeStream>(*core_, file, StripeStream::Target{.block = block}, options);
}

std::shared_ptr<ReadStream> BlockReader::OpenBlockAt(const std::string& file, uint64_t offset,
                                                     const ReadOptions& options) {
  return std::make_shared<StripeStream>(*core_, file, StripeStream::Target{.block_at = offset}, options);
}

void BlockReader::ForgetLayout(const std::string& file) {
  core_->ForgetLayout(file);
}

}  // namespace sluice
