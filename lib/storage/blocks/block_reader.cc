#include "sluice/block_reader.h"

#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/fan_out/fan_out_validate.h"
#include "lib/link/worker_list.h"
#include "lib/storage/blocks/file_read.h"
#include "lib/storage/blocks/file_stream.h"
#include "lib/storage/blocks/reader_gate.h"
#include "lib/storage/blocks/reader_state.h"

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

// Collects the parts of a read on the link's thread; gaps are zeros. It uses memory only as bytes arrive, regardless of
// the length in the manifest. There is one for each Read. It lives until it has called back.
class BlockCollector : public std::enable_shared_from_this<BlockCollector> {
 public:
  explicit BlockCollector(std::shared_ptr<FileRead> read) : read_(std::move(read)) {}

  std::future<absl::StatusOr<Block>> result() { return result_.get_future(); }

  void Pull() {
    read_->Next([self = shared_from_this()](absl::StatusOr<ReadPart> part) { self->OnPart(std::move(part)); },
                FileRead::CallOn::kLinkThread);
  }

  void End(absl::StatusOr<Block> block) { result_.set_value(std::move(block)); }

 private:
  void OnPart(absl::StatusOr<ReadPart> part) {
    if (!part.ok()) return Stop(part.status());
    if (const auto* header = std::get_if<ReadHeader>(&*part)) {
      if (header->length > BlockReader::kMaxReadBytes) return Stop(TooLarge(header->length));
      block_.data.reserve(header->length);
    } else if (const auto* chunk = std::get_if<ReadChunk>(&*part)) {
      block_.data.append(chunk->data);
    } else if (auto* missing = std::get_if<MissingBytes>(&*part)) {
      block_.data.append(missing->length, '\0');
      block_.missing.push_back(std::move(*missing));
    } else {
      block_.summary = std::get<ReadSummary>(*part);
      return Stop(std::move(block_));
    }
    Pull();
  }

  void Stop(absl::StatusOr<Block> block) {
    std::exchange(read_, nullptr)->Drop();
    End(std::move(block));
  }

  static absl::Status TooLarge(uint64_t bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("the block has ", bytes, " bytes; Read takes at most ", BlockReader::kMaxReadBytes));
  }

  std::shared_ptr<FileRead> read_;
  Block block_;
  std::promise<absl::StatusOr<Block>> result_;
};

}  // namespace

absl::Status BlockReader::Validate(const Options& options) {
  absl::Status status = CheckTimeout("sru_timeout", options.sru_timeout);
  status.Update(CheckTimeout("block_timeout", options.block_timeout));
  status.Update(CheckTimeout("connect_timeout", options.connect_timeout));
  status.Update(CheckRange("attempts", options.attempts, kMaxAttempts));
  status.Update(CheckRange("segment_bytes", options.segment_bytes, kMaxSegmentBytes));
  status.Update(ValidateHedging(options.hedge_after, options.hedge_after_quantile, options.hedge_ratio));
  status.Update(ParseFixedWorkers(options.workers).status());
  if (status.ok() && options.tls.has_value()) status = ValidateTls(*options.tls);
  return status;
}

absl::StatusOr<std::unique_ptr<BlockReader>> BlockReader::Create(std::shared_ptr<Link> link, Options options) {
  if (!link) return absl::InvalidArgumentError("link is null; create one with Link::Create");
  return Make(std::move(link), std::move(options), nullptr);
}

absl::StatusOr<std::unique_ptr<BlockReader>> BlockReader::Successor(Options options) const {
  return Make(link_, std::move(options), state_.get());
}

absl::StatusOr<std::unique_ptr<BlockReader>> BlockReader::Make(std::shared_ptr<Link> link, Options options,
                                                               const ReaderState* before) {
  if (absl::Status valid = Validate(options); !valid.ok()) return valid;
  options.workers = *ParseFixedWorkers(options.workers);
  std::unique_ptr<BlockReader> reader(new BlockReader(std::move(link)));
  absl::Status status;
  reader->link_->Await([&](LinkLoop& loop) {
    std::shared_ptr<TlsContext> tls;
    if (options.tls.has_value()) {
      auto found = loop.workers().FindTls(*options.tls);
      status = found.status();
      if (!found.ok()) return;
      tls = *std::move(found);
    }
    reader->state_ =
        std::make_unique<ReaderState>(loop, reader->link_->callbacks(), std::move(tls), std::move(options));
    if (before != nullptr && before->connects_all()) reader->state_->ConnectAll();
  });
  if (!status.ok()) return status;
  return reader;
}

BlockReader::BlockReader(std::shared_ptr<Link> link)
    : link_(std::move(link)), gate_(std::make_shared<ReaderGate>(*link_)) {}

BlockReader::~BlockReader() {
  gate_->Close();
  if (state_ == nullptr) return;
  const auto idle = std::make_shared<std::promise<void>>();
  link_->Post([this, idle](LinkLoop&) { state_->Close([idle] { idle->set_value(); }); });
  idle->get_future().wait();
  link_->Await([this](LinkLoop&) { state_.reset(); });
}

std::vector<std::pair<std::string, absl::Status>> BlockReader::Connect() {
  using Unconnected = std::vector<std::pair<std::string, absl::Status>>;
  const auto done = std::make_shared<std::promise<Unconnected>>();
  link_->Post([this, done](LinkLoop&) {
    state_->fan_out().Connect(state_->options().connect_timeout, [this, done](const std::vector<size_t>& workers) {
      Unconnected unconnected;
      for (size_t worker : workers) {
        const absl::Status& failure = state_->workers().workers[worker]->failure();
        unconnected.emplace_back(state_->address(worker),
                                 failure.ok() ? absl::UnavailableError("no connection yet") : failure);
      }
      done->set_value(std::move(unconnected));
    });
  });
  return done->get_future().get();
}

void BlockReader::ConnectInBackground() {
  link_->Post([this](LinkLoop&) { state_->ConnectAll(); });
}

std::shared_ptr<FileRead> BlockReader::NewRead(const std::string& file, std::optional<uint64_t> block,
                                               std::optional<uint64_t> block_at, const ReadOptions& options) {
  return std::make_shared<FileRead>(*state_, file, FileRead::Target{.block = block, .block_at = block_at}, options);
}

absl::StatusOr<Block> BlockReader::Read(const std::string& file, uint64_t block, const ReadOptions& options) {
  const auto collector = std::make_shared<BlockCollector>(NewRead(file, block, std::nullopt, options));
  auto result = collector->result();
  auto pull = [collector](LinkLoop&) { collector->Pull(); };
  if (!gate_->Post(pull)) collector->End(absl::CancelledError("the reader is gone"));
  return result.get();
}

std::shared_ptr<ReadStream> BlockReader::Open(const std::string& file, std::optional<uint64_t> block,
                                              const ReadOptions& options) {
  return std::make_shared<FileStream>(gate_, NewRead(file, block, std::nullopt, options));
}

std::shared_ptr<ReadStream> BlockReader::OpenBlockAt(const std::string& file, uint64_t offset,
                                                     const ReadOptions& options) {
  return std::make_shared<FileStream>(gate_, NewRead(file, std::nullopt, offset, options));
}

void BlockReader::ForgetLayout(const std::string& file) {
  link_->Post([this, file](LinkLoop&) { state_->ForgetLayout(file); });
}

}  // namespace sluice
