#include "lib/storage/blocks/manifest_fetch.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "sluice/v1/sru_service.pb.h"

#include "absl/strings/str_cat.h"
#include "lib/grpc_wire/request.h"
#include "lib/net/clock.h"
#include "lib/storage/blocks/reader_state.h"
#include "lib/storage/stripe/manifest.h"

namespace sluice {
namespace {

constexpr char kManifestPath[] = "/sluice.v1.SruService/ReadManifest";
// Far above the size of most manifests, and at most the largest read of a worker.
constexpr uint64_t kRangeBytes = 1 << 20;
constexpr int64_t kManifestFieldBytes = 32;  // of a response, in addition to the bytes of the manifest
constexpr int64_t kMaxManifestBytes = kRangeBytes + kManifestFieldBytes;
// Number of workers that one run asks, one after the other. With more, the search could not use the responses of the
// first workers; with fewer, the fetch loses its block's place in the link's queue more often.
constexpr size_t kCandidatesOfRun = 3;

// Retry after every error: a different worker may have the file.
std::vector<absl::StatusCode> AnyError() {
  std::vector<absl::StatusCode> codes;
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    codes.push_back(static_cast<absl::StatusCode>(code));
  }
  return codes;
}

}  // namespace

ManifestFetch::ManifestFetch(ReaderState& state, std::string file, std::shared_ptr<const Metadata> metadata)
    : state_(state),
      file_(std::move(file)),
      metadata_(std::move(metadata)),
      deadline_(DeadlineAfter(state.link().now(), state.options().block_timeout)),
      search_(file_, state.workers().workers.size()) {}

void ManifestFetch::Leave(Waiter& waiter) {
  std::erase(waiters_, &waiter);
  if (!waiters_.empty()) return;
  state_.OnFetched(*this, nullptr);
  if (const auto run = run_.lock()) run->Cancel(absl::CancelledError("nobody wants the manifest any more"));
}

void ManifestFetch::Start() {
  AskForBeginning();
}

// Ask workers that hang or are unreachable last.
std::vector<size_t> ManifestFetch::NextCandidates(size_t first) {
  const auto bad = [this](size_t worker) {
    return state_.fan_out().worker_history().Bad(state_.link().now(), state_.workers().workers[worker]->row());
  };
  while (candidates_.size() < first + kCandidatesOfRun) {
    const std::optional<size_t> next = search_.Next(bad);
    if (!next.has_value()) break;
    candidates_.push_back(*next);
  }
  return {candidates_.begin() + static_cast<std::ptrdiff_t>(first), candidates_.end()};
}

void ManifestFetch::AskForBeginning() {
  begun_ = false;
  stored_.clear();
  std::vector<size_t> workers = NextCandidates(next_candidate_);
  if (workers.empty()) return Finish(Failure());
  workers = state_.fan_out().OrderOf(state_.workers(), workers.front(), {workers.begin() + 1, workers.end()});
  std::copy(workers.begin(), workers.end(), candidates_.begin() + static_cast<std::ptrdiff_t>(next_candidate_));
  Run({{.offset = 0, .length = kRangeBytes}}, workers);
}

void ManifestFetch::AskForRest() {
  std::vector<Range> ranges;
  for (uint64_t offset = kRangeBytes; offset < stored_.size(); offset += kRangeBytes) {
    ranges.push_back(
        {.offset = offset, .length = static_cast<uint32_t>(std::min<uint64_t>(kRangeBytes, stored_.size() - offset))});
  }
  const auto source = std::find(candidates_.begin(), candidates_.end(), source_);
  Run(std::move(ranges), NextCandidates(static_cast<size_t>(source - candidates_.begin())));
}

void ManifestFetch::Run(std::vector<Range> ranges, const std::vector<size_t>& workers) {
  ranges_ = std::move(ranges);
  verdicts_.clear();
  FanOutRun::Spec spec = state_.SpecFor(kManifestPath, deadline_);
  spec.max_message_bytes = kMaxManifestBytes;
  spec.metadata = metadata_;
  spec.limits.retry_on = AnyError();
  for (const Range& range : ranges_) {
    FanOutRun::Ask& ask = spec.asks.emplace_back();
    ask.request = RequestFor(range, workers.front());
    ask.workers = workers;
    ask.primary = workers.front();
    if (begun_) ask.response_bytes = range.length + kManifestFieldBytes;
  }
  const auto run = FanOutRun::Make(state_.fan_out(), std::move(spec), shared_from_this());
  run_ = run;
  run->Begin();
}

std::shared_ptr<const std::string> ManifestFetch::RequestFor(const Range& range, size_t worker) const {
  v1::ReadManifestRequest request;
  request.set_file(file_);
  request.set_worker(static_cast<uint32_t>(worker));
  request.set_offset(range.offset);
  request.set_length(range.length);
  return std::make_shared<const std::string>(FrameMessage(request.SerializeAsString()));
}

std::shared_ptr<const std::string> ManifestFetch::RequestOf(size_t attempt) {
  const auto run = run_.lock();
  const Attempt& made = run->logic().attempt(attempt);
  if (!made.retry && !made.hedge) return nullptr;
  return RequestFor(ranges_[made.ask], made.worker);
}

void ManifestFetch::Accept(size_t attempt, std::vector<WireMessage> messages) {
  const auto run = run_.lock();
  const Attempt made = run->logic().attempt(attempt);
  for (WireMessage& message : messages) {
    absl::Status verdict = Decompress(message, kMaxManifestBytes);
    if (verdict.ok()) verdict = Store(ranges_[made.ask], made.worker, message.bytes);
    if (!verdict.ok()) verdicts_[attempt] = verdict;
    run->Accepted(attempt, verdict, message.bytes.size());
  }
}

absl::Status ManifestFetch::Store(const Range& range, size_t worker, const std::string& message) {
  v1::ReadManifestResponse response;
  if (!response.ParseFromString(message)) {
    return absl::DataLossError("answered with bytes that are not the expected message");
  }
  const uint64_t total = response.total_bytes();
  if (total > kMaxStoredManifestBytes) {
    return absl::DataLossError(
        absl::StrCat("its manifest has ", total, " bytes; at most ", kMaxStoredManifestBytes, " are read"));
  }
  const bool fits = range.offset <= total && (!begun_ || total == stored_.size());
  if (!fits || response.data().size() != std::min<uint64_t>(range.length, total - range.offset)) {
    return absl::DataLossError(absl::StrCat("answered with ", response.data().size(), " of ", total,
                                            " manifest bytes at offset ", range.offset,
                                            "; that is not what was asked for"));
  }
  if (begun_) {
    std::memcpy(stored_.data() + range.offset, response.data().data(), response.data().size());
    return absl::OkStatus();
  }
  stored_ = std::move(*response.mutable_data());
  source_ = worker;
  if (stored_.size() == total) return Decode();
  begun_ = true;
  stored_.resize(total);
  return absl::OkStatus();
}

absl::Status ManifestFetch::Decode() {
  auto manifest = DecodeManifest(stored_);
  if (!manifest.ok()) return absl::DataLossError(manifest.status().message());
  auto layout = StripeLayout::Create(*std::move(manifest));
  if (!layout.ok()) return absl::DataLossError(layout.status().message());
  layout_ = std::make_shared<const StripeLayout>(*std::move(layout));
  return absl::OkStatus();
}

void ManifestFetch::OnEnd(FanOutRun& run) {
  const FanOutLogic::Result& result = run.logic().result();
  // The queue had no room, or the last waiter has left.
  if (!result.status.ok() && !result.decisive.has_value()) return Finish(result.status);
  NoteFailures(run);
  if (!result.status.ok()) return TryOtherWorkers();
  if (layout_ == nullptr && ranges_.front().offset == 0) return AskForRest();
  if (layout_ == nullptr) {
    if (const absl::Status decoded = Decode(); !decoded.ok()) {
      NoteFailure(source_, decoded);
      return TryOtherWorkers();
    }
  }
  const size_t workers = state_.workers().workers.size();
  if (layout_->Workers() > workers) {
    return Finish(absl::FailedPreconditionError(absl::StrCat(
        "file \"", file_, "\" is striped over ", layout_->Workers(), " workers; this reader has ", workers)));
  }
  Finish(layout_);
}

// Prefer the error of a worker that has the file in a bad state to NotFound.
void ManifestFetch::NoteFailures(const FanOutRun& run) {
  for (size_t attempt = 0; attempt < run.logic().attempts(); ++attempt) {
    const Attempt& made = run.logic().attempt(attempt);
    const bool failed = made.outcome == AttemptOutcome::kFailed;
    if (!failed && made.outcome != AttemptOutcome::kRefused) continue;
    absl::Status why = failed ? run.end(attempt).status : verdicts_[attempt];
    // The attempt was cancelled because it took too long.
    if (failed && (why.ok() || run.cancelled(attempt))) {
      why = absl::DeadlineExceededError(absl::StrCat("no answer within the deadline or the timeout of ",
                                                     absl::FormatDuration(state_.options().sru_timeout)));
    }
    NoteFailure(made.worker, why);
  }
  const auto& decisive = run.logic().result().decisive;
  if (failure_.ok() && decisive.has_value() && !absl::IsNotFound(decisive->status)) {
    NoteFailure(decisive->worker, decisive->status);
  }
}

void ManifestFetch::NoteFailure(size_t worker, const absl::Status& why) {
  if (absl::IsNotFound(why)) {
    search_.OnNotFound(worker);
    not_found_ = std::string(why.message());
    return;
  }
  failure_.Update(
      absl::Status(ReaderCode(why.code()), absl::StrCat("manifest of file \"", file_, "\": worker ", worker, " (",
                                                        state_.address(worker), "): ", why.message())));
}

// A run for the beginning has asked all its candidates. A run for the rest has asked the candidates up to the source.
void ManifestFetch::TryOtherWorkers() {
  if (state_.link().now() >= deadline_) {
    failure_.Update(absl::DeadlineExceededError(
        absl::StrCat("manifest of file \"", file_, "\": the deadline passed before all workers were asked")));
    return Finish(Failure());
  }
  const auto source = std::find(candidates_.begin(), candidates_.end(), source_);
  next_candidate_ = begun_ ? static_cast<size_t>(source - candidates_.begin()) + 1 : candidates_.size();
  AskForBeginning();
}

absl::Status ManifestFetch::Failure() const {
  if (!failure_.ok()) return failure_;
  return absl::NotFoundError(absl::StrCat("no file \"", file_, "\" on the workers asked: ", not_found_));
}

void ManifestFetch::Finish(Found found) {
  const auto self = shared_from_this();
  state_.OnFetched(*this, found.ok() ? *found : nullptr);
  for (Waiter* waiter : std::exchange(waiters_, {})) waiter->OnLayout(found);
}

}  // namespace sluice
