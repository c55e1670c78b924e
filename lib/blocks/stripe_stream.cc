#include "lib/blocks/stripe_stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "lib/rpc/clock.h"
#include "lib/stripe/stripe_name.h"
#include "lib/telemetry/aggregator_metrics.h"

namespace sluice {
namespace {

constexpr size_t kSegmentsInMemory = 2;

}  // namespace

absl::StatusOr<ReadPart> ReadStream::Next() {
  absl::Notification done;
  absl::StatusOr<ReadPart> part = absl::UnknownError("");
  Next([&](absl::StatusOr<ReadPart> next) {
    part = std::move(next);
    done.Notify();
  });
  done.WaitForNotification();
  return part;
}

StripeStream::StripeStream(ReaderCore& core, std::string file, const Target& target, const ReadOptions& options)
    : core_(core),
      gate_(core.gate()),
      file_(std::move(file)),
      target_(target),
      options_(options),
      deadline_(DeadlineAfter(options.timeout)) {}

// Nobody can call any more: progress reaches the stream through weak pointers only.
StripeStream::~StripeStream() {
  if (const ReaderGate::Pass pass(*gate_); pass) StopFetching();
  if (waiter_) waiter_(absl::CancelledError("the read was dropped"));
}

void StripeStream::Next(Callback callback) {
  bool busy = false;
  {
    absl::MutexLock lock(&mutex_);
    busy = waiter_ != nullptr;
    if (!busy) waiter_ = std::move(callback);
  }
  if (busy) return callback(absl::FailedPreconditionError("one Next at a time; the one before has not been answered"));
  Pump();
}

void StripeStream::Cancel() {
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
  }
  Pump();
}

std::function<void()> StripeStream::PumpLater() {
  return [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->Pump();
  };
}

void StripeStream::Pump() {
  {
    absl::MutexLock lock(&mutex_);
    again_ = true;
    if (pumping_) return;
    pumping_ = true;
  }
  // The consumer may drop the stream in its callback.
  const auto self = shared_from_this();
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      pumping_ = std::exchange(again_, false);
      if (!pumping_) return;
    }
    Step();
  }
}

void StripeStream::Step() {
  bool cancelled = false;
  bool waiting = false;
  {
    absl::MutexLock lock(&mutex_);
    cancelled = cancelled_;
    waiting = waiter_ != nullptr;
  }
  if (!waiting && !cancelled) return;
  auto part = Advance(cancelled);
  if (!waiting || (part.ok() && !part->has_value())) return;
  ended_ |= !part.ok();
  Callback waiter;
  {
    absl::MutexLock lock(&mutex_);
    waiter = std::exchange(waiter_, nullptr);
  }
  if (!waiter) return;
  if (part.ok()) {
    waiter(**std::move(part));
  } else {
    waiter(part.status());
  }
}

absl::StatusOr<std::optional<ReadPart>> StripeStream::Advance(bool cancelled) {
  if (ended_) return absl::FailedPreconditionError("the read has ended");
  const ReaderGate::Pass pass(*gate_);
  if (!pass) return absl::CancelledError("the reader is gone");
  absl::StatusOr<std::optional<ReadPart>> part = absl::CancelledError("the read was cancelled");
  if (!cancelled) part = Produce();
  if (!part.ok()) StopFetching();
  if (absl::IsResourceExhausted(part.status())) core_.metrics().CountBlock(BlockOutcome::kRefused);
  return part;
}

void StripeStream::StopFetching() {
  if (manifest_) manifest_->Cancel();
  for (const auto& fetch : fetches_) fetch->Cancel();
  fetches_.clear();
}

absl::StatusOr<std::optional<ReadPart>> StripeStream::Produce() {
  std::optional<ReadPart> header;
  if (!layout_) {
    auto begun = Begin();
    if (!begun.ok() || !begun->has_value()) return begun;
    header = **std::move(begun);
  }
  // Only from the header does the consumer learn which block this is: there may be no room for it.
  if (header && target_.block_at.has_value()) return header;
  // Before the header is handed out: the consumer's way to the next call is time in which the link could work.
  if (absl::Status started = StartFetches(); !started.ok()) return started;
  if (header) return header;
  if (!fetches_.empty()) return TakeFromFront();
  ended_ = true;
  return summary_;
}

absl::StatusOr<std::optional<ReadPart>> StripeStream::Begin() {
  if (absl::Status valid = ValidateFileName(file_); !valid.ok()) return valid;
  std::shared_ptr<const StripeLayout> layout = core_.FindLayout(file_);
  if (!layout) {
    absl::MutexLock lock(&mutex_);
    if (found_ && !found_->ok()) return found_->status();
    if (found_) layout = **found_;
  }
  if (!layout) {
    AskForLayout();
    return std::nullopt;
  }
  const absl::StatusOr<std::optional<uint64_t>> block = BlockOf(*layout);
  if (!block.ok()) return block.status();
  layout_ = std::move(layout);
  const auto whole_file = StripeLayout::SruRange{.first = 0, .count = layout_->SruCount()};
  const auto srus = block->has_value() ? layout_->BlockSrus(**block) : whole_file;
  next_sru_ = srus.first;
  end_sru_ = srus.first + srus.count;
  summary_.bytes_wanted = block->has_value() ? layout_->BlockLength(**block) : layout_->FileBytes();
  return ReadHeader{.file_bytes = layout_->FileBytes(),
                    .offset = layout_->SruOffset(next_sru_),
                    .length = summary_.bytes_wanted,
                    .block_bytes = layout_->BlockBytes(),
                    .sru_bytes = layout_->SruBytes(),
                    .workers = layout_->Workers(),
                    .file_crc32c = layout_->manifest().file_crc32c(),
                    .upper_manifest_crc32c = layout_->manifest().upper_manifest_crc32c()};
}

absl::StatusOr<std::optional<uint64_t>> StripeStream::BlockOf(const StripeLayout& layout) const {
  if (target_.block_at.has_value()) {
    if (*target_.block_at < layout.FileBytes()) return *target_.block_at / layout.BlockBytes();
    return absl::OutOfRangeError(absl::StrCat("offset ", *target_.block_at, " of file \"", file_,
                                              "\" was asked for; it has ", layout.FileBytes(), " bytes"));
  }
  if (!target_.block.has_value() || *target_.block < layout.BlockCount()) return target_.block;
  return absl::OutOfRangeError(absl::StrCat("block ", *target_.block, " of file \"", file_, "\" was asked for; it has ",
                                            layout.BlockCount(), " blocks"));
}

void StripeStream::AskForLayout() {
  if (manifest_) return;
  manifest_ =
      ManifestFetch::Start(core_, file_, BlockDeadline(),
                           [weak = weak_from_this()](absl::StatusOr<std::shared_ptr<const StripeLayout>> found) {
                             const auto self = weak.lock();
                             if (!self) return;
                             {
                               absl::MutexLock lock(&self->mutex_);
                               self->found_ = std::move(found);
                             }
                             self->Pump();
                           });
}

TimePoint StripeStream::BlockDeadline() const {
  return std::min(deadline_, DeadlineAfter(core_.options().block_timeout));
}

absl::Status StripeStream::StartFetches() {
  while (next_sru_ < end_sru_ && fetches_.size() < kSegmentsInMemory) {
    SegmentFetch::Spec spec = NextSegment();
    const uint64_t srus = spec.srus;
    auto fetch = SegmentFetch::Start(core_, std::move(spec), PumpLater());
    // A queue that is full refuses what is new. This read is not: it tries again when what it has is through.
    if (absl::IsResourceExhausted(fetch.status()) && !fetches_.empty()) return absl::OkStatus();
    if (!fetch.ok()) return fetch.status();
    fetches_.push_back(*std::move(fetch));
    next_sru_ += srus;
  }
  return absl::OkStatus();
}

// The rest of the data block, or as much of it as a segment holds.
SegmentFetch::Spec StripeStream::NextSegment() const {
  const uint64_t block_end = (next_sru_ / layout_->Workers() + 1) * layout_->Workers();
  const uint64_t at_most = std::max<uint64_t>(core_.options().segment_bytes / layout_->SruBytes(), 1);
  return {.file = file_,
          .layout = layout_,
          .first_sru = next_sru_,
          .srus = std::min({block_end - next_sru_, end_sru_ - next_sru_, at_most}),
          .allow_partial = options_.allow_partial,
          .deadline = BlockDeadline()};
}

absl::StatusOr<std::optional<ReadPart>> StripeStream::TakeFromFront() {
  auto part = fetches_.front()->Take();
  if (!part.ok() || !part->has_value()) return part;
  if (const auto* chunk = std::get_if<ReadChunk>(&**part)) summary_.bytes_read += chunk->data.size();
  if (fetches_.front()->Drained()) fetches_.pop_front();
  return part;
}

}  // namespace sluice
