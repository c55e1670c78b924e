#include "lib/storage/blocks/file_read.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/metadata.h"
#include "lib/link/link_metrics.h"
#include "lib/net/clock.h"
#include "lib/storage/stripe/stripe_name.h"

namespace sluice {
namespace {

constexpr size_t kSegmentsInMemory = 2;

absl::Status HasEnded() {
  return absl::FailedPreconditionError("the read has ended");
}

// Whether a manifest that is no longer the file's may have caused this error.
bool LooksStale(const absl::StatusOr<ReadPart>& part) {
  if (!part.ok()) return absl::IsDataLoss(part.status()) || absl::IsNotFound(part.status());
  const auto* const gap = std::get_if<MissingBytes>(&*part);
  return gap != nullptr && gap->code == absl::StatusCode::kDataLoss;
}

}  // namespace

FileRead::FileRead(ReaderState& state, std::string file, const Target& target, const ReadOptions& options)
    : state_(state),
      file_(std::move(file)),
      target_(target),
      options_(options),
      metadata_(options.metadata.empty() ? nullptr : std::make_shared<const Metadata>(options.metadata)),
      deadline_(DeadlineAfter(options.timeout)) {}

absl::Status FileRead::TellGone() {
  return ended_.exchange(true) ? HasEnded() : absl::CancelledError("the reader is gone");
}

void FileRead::Next(ReadStream::Callback callback, CallOn call_on) {
  if (waiter_ != nullptr) {
    state_.callbacks().Run(this, [callback = std::move(callback)] {
      callback(absl::FailedPreconditionError("one Next at a time; the one before has not been answered"));
    });
    return;
  }
  if (!std::exchange(entered_, true)) state_.Enter(shared_from_this());
  waiter_ = std::move(callback);
  call_on_ = call_on;
  Pump();
}

void FileRead::Cancel(const absl::Status& why) {
  stopped_.Update(why);
  StopFetching();
  Pump();
}

void FileRead::Drop() {
  Cancel(absl::CancelledError("the read was dropped"));
  state_.Leave(*this);
}

// A callback on this thread may request the next part. That is then a separate step, and not a call within this one.
void FileRead::Pump() {
  again_ = true;
  if (std::exchange(pumping_, true)) return;
  const auto self = shared_from_this();
  while (std::exchange(again_, false)) Step();
  pumping_ = false;
}

void FileRead::Step() {
  if (waiter_ == nullptr) return;
  if (ended_) return Answer(HasEnded());
  if (!stopped_.ok()) return Answer(stopped_);
  MaybePart part = Produce();
  if (part.ok()) {
    if (part->has_value()) Answer(**std::move(part));
    return;
  }
  StopFetching();
  if (absl::IsResourceExhausted(part.status())) state_.metrics().CountBlock(BlockOutcome::kRefused);
  Answer(part.status());
}

void FileRead::Answer(Part part) {
  if (!part.ok() || std::holds_alternative<ReadSummary>(*part)) ended_ = true;
  ReadStream::Callback waiter = std::exchange(waiter_, nullptr);
  if (call_on_ == CallOn::kLinkThread) return waiter(std::move(part));
  state_.callbacks().Run(this,
                         [waiter = std::move(waiter), part = std::move(part)]() mutable { waiter(std::move(part)); });
}

void FileRead::StopFetching() {
  StopWaiting();
  for (const auto& fetch : fetches_) fetch->Cancel();
  fetches_.clear();
}

void FileRead::StopWaiting() {
  state_.link().timers().Clear(timer_);
  if (const auto manifest = std::exchange(manifest_, nullptr)) manifest->Leave(*this);
}

void FileRead::OnLayout(const ManifestFetch::Found& found) {
  state_.link().timers().Clear(timer_);
  manifest_ = nullptr;
  found_ = found;
  state_.PumpLater(*this);
}

FileRead::MaybePart FileRead::Produce() {
  if (layout_ == nullptr || suspect_.has_value()) {
    if (absl::Status asked = FindLayout(); !asked.ok()) return asked;
    if (!found_.has_value()) return std::nullopt;
    if (absl::Status begun = suspect_.has_value() ? BeginAgainIfStale() : Begin(); !begun.ok()) return begun;
  }
  // The header names the block, and the consumer may have no room for it.
  if (header_.has_value() && target_.block_at.has_value()) return *std::exchange(header_, std::nullopt);
  // Fetch before the header is handed out: the link can work while the consumer gets to its next call.
  if (absl::Status started = StartFetches(); !started.ok()) return started;
  if (header_.has_value() && !from_memory_) return *std::exchange(header_, std::nullopt);
  if (held_.has_value()) return *std::exchange(held_, std::nullopt);
  MaybePart part = fetches_.empty() ? MaybePart(summary_) : TakeFromFront();
  return header_.has_value() ? HoldBehindHeader(std::move(part)) : part;
}

// Whether the read uses a layout from memory and has handed out nothing yet.
FileRead::MaybePart FileRead::HoldBehindHeader(MaybePart part) {
  if (part.ok() && !part->has_value()) return std::nullopt;
  Part first = part.ok() ? Part(**std::move(part)) : Part(part.status());
  if (LooksStale(first)) {
    suspect_ = std::move(first);
    return Produce();
  }
  if (!first.ok()) return first.status();
  held_ = *std::move(first);
  return *std::exchange(header_, std::nullopt);
}

absl::Status FileRead::FindLayout() {
  if (found_.has_value() || manifest_ != nullptr) return absl::OkStatus();
  if (absl::Status valid = ValidateFileName(file_); !valid.ok()) return valid;
  if (absl::Status valid = ValidateMetadata(options_.metadata); !valid.ok()) return valid;
  if (auto known = state_.FindLayout(file_)) {
    from_memory_ = true;
    found_ = std::move(known);
    return absl::OkStatus();
  }
  from_memory_ = false;
  const auto too_late = [this] {
    return absl::DeadlineExceededError(absl::StrCat("manifest of file \"", file_, "\": the deadline passed"));
  };
  const TimePoint deadline = BlockDeadline();
  if (deadline <= state_.link().now()) return too_late();
  auto manifest = state_.FetchLayout(file_, metadata_, *this);
  if (found_.has_value()) return absl::OkStatus();
  manifest_ = std::move(manifest);
  timer_ = state_.link().timers().Set(deadline, [this, too_late] {
    StopWaiting();
    OnLayout(too_late());
  });
  return absl::OkStatus();
}

absl::Status FileRead::Begin() {
  const ManifestFetch::Found found = *std::exchange(found_, std::nullopt);
  if (!found.ok()) return found.status();
  const StripeLayout& layout = **found;
  const absl::StatusOr<std::optional<uint64_t>> block = BlockOf(layout);
  if (!block.ok()) return block.status();
  layout_ = *found;
  const auto whole_file = StripeLayout::SruRange{.first = 0, .count = layout.SruCount()};
  const auto srus = block->has_value() ? layout.BlockSrus(**block) : whole_file;
  next_sru_ = srus.first;
  end_sru_ = srus.first + srus.count;
  summary_ = {.bytes_wanted = block->has_value() ? layout.BlockLength(**block) : layout.FileBytes()};
  header_ = ReadHeader{.file_bytes = layout.FileBytes(),
                       .offset = layout.SruOffset(next_sru_),
                       .length = summary_.bytes_wanted,
                       .block_bytes = layout.BlockBytes(),
                       .sru_bytes = layout.SruBytes(),
                       .workers = layout.Workers(),
                       .file_crc32c = layout.manifest().file_crc32c(),
                       .upper_manifest_crc32c = layout.manifest().upper_manifest_crc32c()};
  return options_.admit == nullptr ? absl::OkStatus() : options_.admit(*header_);
}

// Fetches the current manifest, which shows whether the remembered one was stale. Once: the parts that follow are
// handed out as they are.
absl::Status FileRead::BeginAgainIfStale() {
  const Part suspect = *std::exchange(suspect_, std::nullopt);
  from_memory_ = false;
  if (found_->ok() && (**found_)->ManifestCrc32c() != layout_->ManifestCrc32c()) {
    StopFetching();
    return Begin();
  }
  const absl::Status status = std::exchange(found_, std::nullopt)->status();
  if (absl::IsNotFound(status)) return status;
  if (!suspect.ok()) return suspect.status();
  held_ = *suspect;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<uint64_t>> FileRead::BlockOf(const StripeLayout& layout) const {
  if (target_.block_at.has_value()) {
    if (*target_.block_at < layout.FileBytes()) return *target_.block_at / layout.BlockBytes();
    return absl::OutOfRangeError(absl::StrCat("offset ", *target_.block_at, " of file \"", file_,
                                              "\" was asked for; it has ", layout.FileBytes(), " bytes"));
  }
  if (!target_.block.has_value() || *target_.block < layout.BlockCount()) return target_.block;
  return absl::OutOfRangeError(absl::StrCat("block ", *target_.block, " of file \"", file_, "\" was asked for; it has ",
                                            layout.BlockCount(), " blocks"));
}

TimePoint FileRead::BlockDeadline() const {
  return std::min(deadline_, DeadlineAfter(state_.link().now(), state_.options().block_timeout));
}

absl::Status FileRead::StartFetches() {
  while (next_sru_ < end_sru_ && fetches_.size() < kSegmentsInMemory) {
    SegmentRead::Spec spec = NextSegment();
    const uint64_t srus = spec.srus;
    auto fetch = SegmentRead::Start(state_, std::move(spec), [this] { state_.PumpLater(*this); });
    // A full queue refuses new fetches. This read is under way, so it tries again when its current segments are
    // through.
    if (absl::IsResourceExhausted(fetch.status()) && !fetches_.empty()) return absl::OkStatus();
    if (!fetch.ok()) return fetch.status();
    fetches_.push_back(*std::move(fetch));
    next_sru_ += srus;
  }
  return absl::OkStatus();
}

// Returns the rest of the data block, at most one segment.
SegmentRead::Spec FileRead::NextSegment() const {
  const uint64_t block_end = (next_sru_ / layout_->Workers() + 1) * layout_->Workers();
  const uint64_t at_most = std::max<uint64_t>(state_.options().segment_bytes / layout_->SruBytes(), 1);
  return {.file = file_,
          .layout = layout_,
          .first_sru = next_sru_,
          .srus = std::min({block_end - next_sru_, end_sru_ - next_sru_, at_most}),
          .allow_partial = options_.allow_partial,
          .metadata = metadata_,
          .deadline = BlockDeadline()};
}

FileRead::MaybePart FileRead::TakeFromFront() {
  MaybePart part = fetches_.front()->Take();
  if (!part.ok() || !part->has_value()) return part;
  if (const auto* chunk = std::get_if<ReadChunk>(&**part)) summary_.bytes_read += chunk->data.size();
  if (fetches_.front()->Drained()) fetches_.pop_front();
  return part;
}

}  // namespace sluice
