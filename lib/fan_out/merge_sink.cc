#include "lib/fan_out/merge_sink.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/link/link_metrics.h"

namespace sluice {
namespace {

BlockOutcome OutcomeOf(const FanOutResult& result, const FanOutRun& run) {
  if (run.refused()) return BlockOutcome::kRefused;
  if (absl::IsDeadlineExceeded(result.status)) return BlockOutcome::kDeadline;
  // The decisive failure may be a CANCELLED that a worker sent.
  if (absl::IsCancelled(result.status) && !run.logic().result().decisive.has_value()) return BlockOutcome::kCancelled;
  if (!result.status.ok()) return BlockOutcome::kFailed;
  return result.answered == result.asked ? BlockOutcome::kComplete : BlockOutcome::kPartial;
}

}  // namespace

MergeSink::MergeSink(FanOutState& state, Merge merge, FanOut::Done done, Options options)
    : state_(state), options_(std::move(options)), merge_(std::move(merge)), done_(std::move(done)) {}

void MergeSink::Accept(size_t attempt, std::vector<WireMessage> messages) {
  const auto run = run_.lock();
  if (collected_.empty()) state_.link().AtEndOfTurn([self = shared_from_this()] { self->HandOver(); });
  for (WireMessage& message : messages) {
    collected_.push_back({.attempt = attempt,
                          .primary = run->PrimaryOf(attempt),
                          .worker = run->logic().attempt(attempt).worker,
                          .message = std::move(message),
                          .bytes = 0,
                          .verdict = absl::OkStatus()});
  }
}

void MergeSink::HandOver() {
  auto items = std::make_shared<std::vector<Item>>(std::exchange(collected_, {}));
  const auto run = run_.lock();
  const auto when =
      run == nullptr || run->logic().AwaitsVerdicts() ? Callbacks::When::kThisTurn : Callbacks::When::kSoon;
  state_.callbacks().Run(
      this,
      [self = shared_from_this(), items] {
        self->MergeAll(*items);
        // The run does not end before it has these verdicts, and the state does not end before the run.
        self->state_.link().executor().Post([self, items] { self->Settle(*items); });
      },
      when);
}

void MergeSink::MergeAll(std::vector<Item>& items) {
  for (Item& item : items) {
    if (options_.stop_merging->load() || refused_.contains(item.attempt)) {
      item.verdict = absl::CancelledError("not merged");
      continue;
    }
    item.verdict = MergeOne(item);
    if (item.verdict.ok()) {
      const WorkerKind kind = item.worker == item.primary ? WorkerKind::kPrimary : WorkerKind::kReplica;
      state_.link().metrics().AddGoodput(item.bytes, kind);
    } else {
      refused_.insert(item.attempt);
    }
  }
}

// Frees the memory of a decompressed message before the next message is decompressed.
absl::Status MergeSink::MergeOne(Item& item) {
  WireMessage message = std::move(item.message);
  const bool was_gzip = message.gzip;
  if (absl::Status whole = Decompress(message, options_.max_message_bytes); !whole.ok()) {
    if (!absl::IsResourceExhausted(whole)) return whole;
    return absl::ResourceExhaustedError(
        absl::StrCat(whole.message(), "; this client's max_response_bytes is ", options_.max_message_bytes));
  }
  item.bytes = message.bytes.size();
  const int64_t decompressed_bytes = was_gzip ? static_cast<int64_t>(item.bytes) : 0;
  state_.link().callback_memory().CountDecompressed(decompressed_bytes);
  absl::Status verdict = merge_(item.primary, message.bytes);
  state_.link().callback_memory().CountDecompressed(-decompressed_bytes);
  if (!was_gzip) item.message = std::move(message);
  return verdict;
}

void MergeSink::Settle(std::vector<Item>& items) {
  for (Item& item : items) {
    state_.link().message_buffers().Give(std::move(item.message.bytes));
    if (const auto run = run_.lock()) run->Accepted(item.attempt, item.verdict, item.bytes);
  }
}

void MergeSink::OnEnd(FanOutRun& run) {
  FanOutResult result = ResultOf(run);
  LinkMetrics& metrics = state_.link().metrics();
  metrics.CountBlock(OutcomeOf(result, run));
  metrics.ObserveBlock(absl::FromChrono(state_.link().now() - run.started()), result.Coverage());
  state_.Hold();
  state_.callbacks().Run(this, [self = shared_from_this(), result = std::move(result)]() mutable {
    // Release the callbacks: they may hold the handle of this fan-out.
    self->merge_ = nullptr;
    std::exchange(self->done_, nullptr)(std::move(result));
    self->state_.link().executor().Post([self] { self->state_.Release(); });
  });
}

FanOutResult MergeSink::ResultOf(const FanOutRun& run) const {
  const FanOutLogic::Result& decided = run.logic().result();
  FanOutResult result{.status = decided.decisive.has_value() ? run.Describe(*decided.decisive) : decided.status,
                      .asked = decided.asked,
                      .answered = decided.answered,
                      .cancelled = decided.cancelled,
                      .failures = {},
                      .responses = {},
                      .retries = decided.retries,
                      .hedges = decided.hedges,
                      .hedges_won = decided.hedges_won,
                      .response_bytes = run.accepted_bytes(),
                      .workers = run.workers().addresses};
  result.failures.reserve(decided.failures.size());
  for (const FanOutLogic::Failure& failure : decided.failures) {
    result.failures.push_back({.primary = run.PrimaryOfAsk(failure.ask),
                               .worker = failure.worker,
                               .status = failure.status,
                               .status_details = run.StatusDetailsOf(failure)});
  }
  if (!options_.keep_response_metadata) return result;
  for (size_t attempt = 0; attempt < run.logic().attempts(); ++attempt) {
    const Attempt& made = run.logic().attempt(attempt);
    if (made.outcome != AttemptOutcome::kResponded) continue;
    result.responses.push_back({.primary = run.PrimaryOf(attempt),
                                .worker = made.worker,
                                .initial = run.end(attempt).initial_metadata,
                                .trailing = run.end(attempt).trailing_metadata});
  }
  return result;
}

}  // namespace sluice
