#include "lib/storage/blocks/segment_read.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/request.h"
#include "lib/link/link_metrics.h"
#include "lib/storage/blocks/sru_message.h"
#include "lib/storage/stripe/stripe_store.h"

namespace sluice {
namespace {

constexpr char kPath[] = "/sluice.v1.SruService/ReadSru";
// Bytes of a message beyond its data: a tag and a length.
constexpr int64_t kFieldBytes = 4;
// Bound of one message, with an aggregator's list of missing bytes.
constexpr int64_t kMaxMessageBytes = 1 << 20;

int64_t ResponseBytes(uint32_t sru_bytes) {
  return int64_t{sru_bytes} + kFieldBytes * ((sru_bytes + kSruMessageBytes - 1) / kSruMessageBytes);
}

// Whether the same worker may respond differently to a retry. A different replica is always worth a request.
std::vector<absl::StatusCode> RetryOn(bool has_replicas) {
  if (!has_replicas) {
    return {absl::StatusCode::kUnavailable, absl::StatusCode::kCancelled, absl::StatusCode::kDeadlineExceeded,
            absl::StatusCode::kDataLoss, absl::StatusCode::kResourceExhausted};
  }
  std::vector<absl::StatusCode> codes;
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    codes.push_back(static_cast<absl::StatusCode>(code));
  }
  return codes;
}

// Returns the missing bytes of a message as bytes of the segment. The message's own bytes belong at `place` of the
// segment, and begin at `in_stripe` of their stripe.
absl::StatusOr<ByteRanges> MissingIn(const SruMessage& message, const ByteRange& place, uint64_t in_stripe) {
  ByteRanges ranges;
  uint64_t last_end = place.begin;
  for (const v1::MissingSruRange& missing : message.missing) {
    const uint64_t begin = missing.offset() - in_stripe + place.begin;  // too large if it lies before the range
    if (begin < last_end || begin >= place.end || missing.length() == 0 || missing.length() > place.end - begin) {
      return absl::DataLossError(absl::StrCat("says that ", missing.length(), " bytes from ", missing.offset(),
                                              " are missing, which is not within what was asked for"));
    }
    last_end = begin + missing.length();
    ranges.push_back({begin, last_end});
  }
  return ranges;
}

absl::Status WhyMissing(const v1::MissingSruRange& missing) {
  return missing.data_loss() ? absl::DataLossError(missing.reason()) : absl::UnavailableError(missing.reason());
}

BlockOutcome OutcomeOf(const absl::Status& status, bool complete) {
  if (absl::IsDeadlineExceeded(status)) return BlockOutcome::kDeadline;
  if (absl::IsCancelled(status)) return BlockOutcome::kCancelled;
  if (!status.ok()) return BlockOutcome::kFailed;
  return complete ? BlockOutcome::kComplete : BlockOutcome::kPartial;
}

}  // namespace

absl::StatusOr<std::shared_ptr<SegmentRead>> SegmentRead::Start(ReaderState& state, Spec spec,
                                                                std::function<void()> on_progress) {
  std::shared_ptr<SegmentRead> fetch(new SegmentRead(state, std::move(spec), std::move(on_progress)));
  const auto run = FanOutRun::Make(state.fan_out(), fetch->RunSpec(), fetch);
  fetch->run_ = run;
  run->Begin();
  if (!fetch->refused_.ok()) return fetch->refused_;
  return fetch;
}

SegmentRead::SegmentRead(ReaderState& state, Spec spec, std::function<void()> on_progress)
    : state_(state),
      spec_(std::move(spec)),
      on_progress_(std::move(on_progress)),
      buffer_(spec_.layout, spec_.first_sru, spec_.srus),
      srus_(spec_.srus) {
  request_.set_file(spec_.file);
  request_.set_allow_partial(spec_.allow_partial);
  request_.set_manifest_crc32c(spec_.layout->ManifestCrc32c());
}

FanOutRun::Spec SegmentRead::RunSpec() {
  const BlockReader::Options& options = state_.options();
  const bool has_replicas = spec_.layout->Replicas() > 1;
  FanOutRun::Spec spec = state_.SpecFor(kPath, spec_.deadline);
  spec.server_streaming = true;
  spec.metadata = spec_.metadata;
  spec.max_message_bytes = kMaxMessageBytes;
  spec.limits.server_streaming = true;
  spec.limits.replaceable = true;
  spec.limits.fail_limit = spec_.allow_partial ? srus_.size() : 0;
  spec.limits.max_attempts = static_cast<size_t>(options.attempts);
  spec.limits.retry_on = RetryOn(has_replicas);
  if (has_replicas && options.hedge_ratio > 0) {
    state_.fan_out().hedges().Earn(options.hedge_ratio * static_cast<double>(srus_.size()));
    spec.limits.hedges = &state_.fan_out().hedges();
    spec.limits.hedge_after = options.hedge_after;
    spec.hedge_after_quantile = options.hedge_after_quantile;
  }
  spec.asks.reserve(srus_.size());
  for (uint64_t sru = 0; sru < srus_.size(); ++sru) {
    FanOutRun::Ask& ask = spec.asks.emplace_back();
    ask.workers = WorkersOf(sru);
    ask.primary = spec_.layout->Worker(spec_.first_sru + sru, 0);
    ask.request = RequestFor(sru, ask.workers.front());
    ask.response_bytes = ResponseBytes(spec_.layout->SruLength(spec_.first_sru + sru));
  }
  return spec;
}

std::vector<size_t> SegmentRead::WorkersOf(uint64_t sru) {
  const uint64_t in_file = spec_.first_sru + sru;
  const uint32_t primary = spec_.layout->Worker(in_file, 0);
  std::vector<size_t> replicas;
  for (uint32_t replica = 1; replica < spec_.layout->Replicas(); ++replica) {
    replicas.push_back(spec_.layout->Worker(in_file, replica));
  }
  return state_.fan_out().OrderOf(state_.workers(), primary, replicas);
}

uint32_t SegmentRead::ReplicaAt(uint64_t sru, size_t worker) const {
  const uint32_t workers = spec_.layout->Workers();
  const uint32_t primary = spec_.layout->Worker(spec_.first_sru + sru, 0);
  return (static_cast<uint32_t>(worker) + workers - primary) % workers;
}

WorkerKind SegmentRead::KindOf(const Attempt& made) const {
  return ReplicaAt(made.ask, made.worker) > 0 ? WorkerKind::kReplica : WorkerKind::kPrimary;
}

std::shared_ptr<const std::string> SegmentRead::RequestFor(uint64_t sru, size_t worker) {
  const uint64_t in_file = spec_.first_sru + sru;
  request_.set_worker(static_cast<uint32_t>(worker));
  request_.set_replica(ReplicaAt(sru, worker));
  request_.set_offset(spec_.layout->OffsetInStripe(in_file));
  request_.set_length(spec_.layout->SruLength(in_file));
  return std::make_shared<const std::string>(FrameMessage(request_.SerializeAsString()));
}

std::shared_ptr<const std::string> SegmentRead::RequestOf(size_t attempt) {
  if (attempt < srus_.size()) return nullptr;  // first attempts, in the order of their asks
  const auto run = run_.lock();
  const Attempt& made = run->logic().attempt(attempt);
  Sru& sru = srus_[made.ask];
  if (std::exchange(sru.last_attempt, static_cast<uint32_t>(attempt)) != attempt) ++sru.attempts;
  return RequestFor(made.ask, made.worker);
}

void SegmentRead::Accept(size_t attempt, std::vector<WireMessage> messages) {
  const auto run = run_.lock();
  const uint64_t sru = run->logic().attempt(attempt).ask;
  absl::Status verdict;
  for (WireMessage& message : messages) {
    if (verdict.ok()) verdict = Decompress(message, kMaxMessageBytes);
    if (verdict.ok()) verdict = Store(attempt, sru, message.bytes);
    run->Accepted(attempt, verdict, message.bytes.size());
  }
}

// The logic accepts one attempt of an SRU at a time, and no message after the attempt was given up or the SRU is
// complete. An attempt that replaces an earlier one begins at the first byte.
absl::Status SegmentRead::Store(size_t attempt, uint64_t index, absl::string_view bytes) {
  if (buffer_.settled(index)) return absl::CancelledError("the SRU is here");
  Sru& sru = srus_[index];
  if (sru.writer != attempt) {
    sru.writer = static_cast<uint32_t>(attempt);
    sru.received_bytes = 0;
    if (const auto partial = partial_.find(index); partial != partial_.end()) partial->second.missing.clear();
  }
  SruMessage message;
  if (!ParseSruMessage(bytes, message)) {
    return absl::DataLossError("answered with bytes that are not the expected message");
  }
  const uint32_t length = spec_.layout->SruLength(spec_.first_sru + index);
  if (message.data.size() > length - sru.received_bytes) {
    return absl::DataLossError(absl::StrCat("answered with more bytes than the ", length, " that were asked for"));
  }
  const uint64_t begin = buffer_.BytesOf(index).begin + sru.received_bytes;
  const ByteRange place = {begin, begin + message.data.size()};
  const uint64_t in_stripe = spec_.layout->OffsetInStripe(spec_.first_sru + index) + sru.received_bytes;
  const absl::StatusOr<ByteRanges> missing = MissingIn(message, place, in_stripe);
  if (!missing.ok()) return missing.status();
  if (!missing->empty() && !spec_.allow_partial) {
    return absl::DataLossError("answered in part, which nobody has asked for");
  }
  sru.received_bytes += static_cast<uint32_t>(message.data.size());
  if (missing->empty() && partial_.empty()) {
    buffer_.Write(place.begin, message.data);
  } else {
    StorePartial(index, message, place, *missing);
  }
  return absl::OkStatus();
}

// The bytes of a partial response stay, and later responses fill only its gaps: the worker that fills them may fail.
void SegmentRead::StorePartial(uint64_t sru, const SruMessage& message, const ByteRange& place,
                               const ByteRanges& missing) {
  const auto known = partial_.find(sru);
  const bool fills = known != partial_.end() && known->second.gaps.has_value();
  ByteRanges parts = Without(place, missing);
  if (fills) parts = Intersect(parts, *known->second.gaps);
  for (const ByteRange& part : parts) {
    buffer_.Write(part.begin, message.data.substr(part.begin - place.begin, part.end - part.begin));
  }
  if (missing.empty()) return;
  Partial& partial = partial_[sru];
  if (partial.missing.empty()) partial.why = WhyMissing(message.missing.front());
  partial.missing.insert(partial.missing.end(), missing.begin(), missing.end());
}

absl::Status SegmentRead::Complete(size_t attempt) {
  const Attempt made = run_.lock()->logic().attempt(attempt);
  if (buffer_.settled(made.ask)) return absl::CancelledError("the SRU is here");
  const Sru& sru = srus_[made.ask];
  const uint32_t received_bytes = sru.writer == attempt ? sru.received_bytes : 0;
  const uint32_t length = spec_.layout->SruLength(spec_.first_sru + made.ask);
  if (received_bytes != length) {
    return absl::DataLossError(absl::StrCat("answered with ", received_bytes, " bytes; ", length, " were asked for"));
  }
  if (const auto partial = partial_.find(made.ask); partial != partial_.end()) {
    return CompletePartial(made, partial->second);
  }
  if (absl::Status checked = buffer_.Check(made.ask); !checked.ok()) return checked;
  buffer_.Settle(made.ask, KindOf(made));
  Progress();
  return absl::OkStatus();
}

// If a different replica may have more bytes, do not count the response, so that the replica is asked. A worker that
// responds in part has read all that it can, so it is not asked again.
absl::Status SegmentRead::CompletePartial(const Attempt& made, Partial& partial) {
  const bool is_first = !partial.gaps.has_value();
  const ByteRanges gaps = is_first ? partial.missing : Intersect(*partial.gaps, partial.missing);
  if (gaps.empty()) {
    if (absl::Status checked = buffer_.Check(made.ask); !checked.ok()) return checked;
    buffer_.Settle(made.ask, std::max(partial.from, KindOf(made)));
    partial_.erase(made.ask);
    Progress();
    return absl::OkStatus();
  }
  partial.gaps = gaps;
  partial.from = std::max(partial.from, KindOf(made));
  const bool another =
      spec_.layout->Replicas() > 1 && srus_[made.ask].attempts < static_cast<uint32_t>(state_.options().attempts);
  if (another) return partial.why;
  buffer_.SettleWithGaps(made.ask, partial.from, gaps,
                         Describe({.ask = made.ask, .worker = made.worker, .status = partial.why}));
  Progress();
  return absl::OkStatus();
}

void SegmentRead::OnAskFailed(const FanOutLogic::Failure& failure) {
  if (!status_.ok()) return;
  const uint64_t sru = failure.ask;
  // The file may have been striped again. Forget the layout before the consumer sees the failure and reads again.
  state_.ForgetLayout(spec_.file);
  const absl::Status reason = Describe(failure);
  if (!spec_.allow_partial) {
    status_ = reason;
  } else {
    // Without these bytes the rest of the SRU cannot be verified.
    const auto partial = partial_.find(sru);
    const bool known = partial != partial_.end() && partial->second.gaps.has_value();
    const ByteRanges gaps = known ? *partial->second.gaps : ByteRanges{buffer_.BytesOf(sru)};
    buffer_.SettleWithGaps(sru, known ? partial->second.from : WorkerKind::kPrimary, gaps, reason);
  }
  Progress();
}

absl::Status SegmentRead::Describe(const FanOutLogic::Failure& failure) const {
  return absl::Status(
      ReaderCode(failure.status.code()),
      absl::StrCat("SRU ", spec_.first_sru + failure.ask, " of file \"", spec_.file, "\": worker ", failure.worker,
                   " (", state_.address(failure.worker), "), attempt ", srus_[failure.ask].attempts, ": ",
                   absl::StatusCodeToString(failure.status.code()), ": ", failure.status.message()));
}

void SegmentRead::OnEnd(FanOutRun& run) {
  const FanOutLogic::Result& result = run.logic().result();
  if (!result.status.ok() && !result.decisive.has_value() && !absl::IsCancelled(result.status)) {
    refused_ = result.status;
    return;
  }
  if (status_.ok()) status_ = result.status;
  const uint64_t arrived_bytes = buffer_.ArrivedBytes();
  state_.metrics().CountBlock(OutcomeOf(status_, arrived_bytes == buffer_.bytes()));
  state_.metrics().ObserveBlock(absl::FromChrono(state_.link().now() - run.started()),
                                static_cast<double>(arrived_bytes) / static_cast<double>(buffer_.bytes()));
  Progress();
}

void SegmentRead::Progress() const {
  if (on_progress_) on_progress_();
}

void SegmentRead::Cancel() {
  on_progress_ = nullptr;
  status_.Update(absl::CancelledError("the read was cancelled"));
  if (const auto run = run_.lock()) run->Cancel(absl::CancelledError("the read was cancelled"));
}

absl::StatusOr<std::optional<ReadPart>> SegmentRead::Take() {
  if (!status_.ok()) return status_;
  return buffer_.Take(state_.metrics());
}

}  // namespace sluice
