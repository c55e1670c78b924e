#include "lib/fan_out/fan_out_run.h"

#include <algorithm>
#include <chrono>

#include <boost/asio/post.hpp>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "lib/rpc/clock.h"
#include "lib/telemetry/aggregator_metrics.h"

namespace sluice {
namespace {

// Of an answer of which nothing is known yet: so much of the buffer.
constexpr int64_t kFirstAnswerShare = 3;

TimePoint DeadlineAfter(TimePoint now, absl::Duration timeout) {
  const auto span = absl::ToChronoNanoseconds(timeout);
  return span < TimePoint::max() - now ? now + span : TimePoint::max();
}

std::optional<absl::Duration> HedgeAfter(const FanOutOptions& options, MethodHistory& history) {
  if (options.hedge_ratio == 0) return std::nullopt;
  if (options.hedge_after_quantile.has_value()) return history.Latency(*options.hedge_after_quantile);
  return options.hedge_after;
}

std::vector<std::vector<size_t>> WorkersByAsk(const std::vector<FanOutRun::WorkerAsk>& asks) {
  std::vector<std::vector<size_t>> workers;
  workers.reserve(asks.size());
  for (const FanOutRun::WorkerAsk& ask : asks) workers.push_back(ask.workers);
  return workers;
}

FanOutTally::Limits LimitsOf(const FanOutOptions& options) {
  FanOutTally::Limits limits{.fail_limit = static_cast<size_t>(options.fail_limit)};
  if (options.success_quorum.has_value()) limits.success_quorum = static_cast<size_t>(*options.success_quorum);
  return limits;
}

BlockOutcome OutcomeOf(const FanOutResult& result) {
  if (absl::IsDeadlineExceeded(result.status)) return BlockOutcome::kDeadline;
  if (absl::IsCancelled(result.status)) return BlockOutcome::kCancelled;
  if (!result.status.ok()) return BlockOutcome::kFailed;
  return result.answered == result.asked ? BlockOutcome::kComplete : BlockOutcome::kPartial;
}

}  // namespace

std::shared_ptr<FanOutRun> FanOutRun::Start(FanOutCore& core, Spec spec) {
  std::shared_ptr<FanOutRun> run(new FanOutRun(core, std::move(spec)));
  run->Start();
  return run;
}

FanOutRun::FanOutRun(FanOutCore& core, Spec spec)
    : core_(core),
      spec_(std::move(spec)),
      started_(Now()),
      deadline_(DeadlineAfter(started_, spec_.options.timeout)),
      history_(core.History(spec_.method)),
      hedge_after_(HedgeAfter(spec_.options, *history_)),
      tally_(LimitsOf(spec_.options), WorkersByAsk(spec_.asks)),
      failure_by_ask_(spec_.asks.size()),
      hedge_timer_(hedge_after_.has_value() ? std::make_shared<boost::asio::steady_timer>(core.link().io_context())
                                            : nullptr) {}

void FanOutRun::Start() {
  core_.AllowHedges(static_cast<double>(spec_.asks.size()) * spec_.options.hedge_ratio);
  std::vector<GroupCall> calls;
  {
    absl::MutexLock lock(&mutex_);
    result_.asked = spec_.asks.size();
    for (size_t ask = 0; ask < spec_.asks.size(); ++ask) calls.push_back(*NextCall(ask, /*hedge=*/false));
  }
  if (calls.empty()) return OnEnd();
  auto self = shared_from_this();
  CallGroup::Handlers handlers{
      .on_answer =
          [self](CallGroup& group, size_t attempt, absl::StatusOr<grpc::ByteBuffer> answer) {
            return self->OnAnswer(group, attempt, std::move(answer));
          },
      .on_end = [self] { self->OnEnd(); },
      .on_message = [self](CallGroup& group, size_t attempt,
                           grpc::ByteBuffer& message) { self->OnMessage(group, attempt, message); },
      .on_sent = [self](size_t attempt) { self->OnSent(attempt); },
      .on_ready = [self](size_t attempt) { self->OnReady(attempt); }};
  auto group = core_.StartGroup(std::move(calls), deadline_, std::move(handlers));
  bool cancelled = false;
  std::optional<TimePoint> hedge_due;
  {
    absl::MutexLock lock(&mutex_);
    if (!group.ok()) {
      decided_ = true;
      result_.status = group.status();
    } else if (!ended_) {
      group_ = *group;
      cancelled = decided_;
      hedge_timer_armed_ = !hedge_times_.empty();
      if (hedge_timer_armed_) hedge_due = hedge_times_.front().due;
    }
  }
  if (!group.ok()) return OnEnd();
  if (hedge_due.has_value()) ArmHedgeTimer(*hedge_due);
  if (cancelled) (*group)->Cancel();
}

std::optional<GroupCall> FanOutRun::NextCall(size_t ask, bool hedge) {
  const std::optional<size_t> attempt = tally_.NextAttempt(ask, hedge);
  if (!attempt.has_value()) return std::nullopt;
  attempts_.emplace_back();
  return CallFor(*attempt);
}

GroupCall FanOutRun::CallFor(size_t attempt) {
  const FanOutTally::Attempt& made = tally_.attempt(attempt);
  const WorkerAsk& ask = spec_.asks[made.ask];
  std::optional<int64_t> bytes = ask.response_bytes;
  if (!bytes.has_value()) bytes = history_->ResponseBytes();
  return {.channels = &core_.channels(),
          .worker = made.worker,
          .method = spec_.method,
          .server_streaming = spec_.server_streaming,
          .request = ask.request,
          .response_bytes = bytes.value_or(core_.link().options().profile.buffer_bytes / kFirstAnswerShare),
          .estimated = !ask.response_bytes.has_value(),
          .metadata = &spec_.options.metadata,
          .timeout = absl::InfiniteDuration(),
          .tag = attempt,
          .retry = !made.hedge && made.worker != ask.workers.front()};
}

void FanOutRun::OnSent(size_t attempt) {
  const TimePoint now = Now();
  std::optional<TimePoint> due;
  {
    absl::MutexLock lock(&mutex_);
    attempts_[attempt].sent = now;
    if (!hedge_after_.has_value() || !tally_.MayHedge(attempt)) return;
    due = DeadlineAfter(now, *hedge_after_);
    hedge_times_.push_back({*due, attempt});
    // Without the group nobody can be hedged; Start arms the timer when it has it.
    if (!group_ || std::exchange(hedge_timer_armed_, true)) return;
  }
  ArmHedgeTimer(*due);
}

void FanOutRun::OnReady(size_t attempt) {
  TimePoint sent;
  {
    absl::MutexLock lock(&mutex_);
    tally_.OnReady(attempt);
    sent = attempts_[attempt].sent;
  }
  history_->ObserveLatency(absl::FromChrono(Now() - sent));
}

void FanOutRun::OnMessage(CallGroup& group, size_t attempt, grpc::ByteBuffer& message) {
  {
    absl::MutexLock merging(&merging_);
    absl::Status merged = Deliver(group, attempt, message);
    if (merged.ok()) return;
    absl::MutexLock lock(&mutex_);
    attempts_[attempt].refused.Update(std::move(merged));
  }
  group.CancelCall(attempt);
}

absl::Status FanOutRun::OnAnswer(CallGroup& group, size_t attempt, absl::StatusOr<grpc::ByteBuffer> answer) {
  absl::Status status = answer.status();
  {
    absl::MutexLock lock(&mutex_);
    // The end of a stream may come before the cancellation that follows the refusal.
    if (!attempts_[attempt].refused.ok()) status = attempts_[attempt].refused;
  }
  Consequence next;
  if (status.ok()) {
    // One lock around both: after the answer that is enough, no other one is merged.
    absl::MutexLock merging(&merging_);
    if (!spec_.server_streaming) status = Deliver(group, attempt, *answer);
    next = Settle(attempt, status);
  } else {
    // Not under that lock: a merge that cancels the fan-out gets here.
    next = Settle(attempt, status);
  }
  // A retry first: it keeps the block alive.
  if (next.retry.has_value()) group.Add(*std::move(next.retry));
  if (next.enough) group.Cancel();
  return status;
}

absl::Status FanOutRun::Deliver(CallGroup& group, size_t attempt, grpc::ByteBuffer& message) {
  const auto bytes = static_cast<int64_t>(message.Length());
  FanOutTally::Attempt made;
  {
    absl::MutexLock lock(&mutex_);
    if (!attempts_[attempt].refused.ok()) return attempts_[attempt].refused;
    if (decided_ || !tally_.Wanted(attempt)) return absl::CancelledError("not needed any more");
    made = tally_.attempt(attempt);
  }
  const size_t primary = spec_.asks[made.ask].workers.front();
  if (absl::Status merged = spec_.merge(primary, message); !merged.ok()) return merged;
  const WorkerKind kind = made.worker == primary ? WorkerKind::kPrimary : WorkerKind::kReplica;
  core_.metrics().AddGoodput(static_cast<uint64_t>(bytes), kind);
  std::vector<size_t> rivals;
  {
    absl::MutexLock lock(&mutex_);
    // Not before: the rival of an answer that is refused is needed. Nobody else can have claimed, that takes merging_.
    tally_.Claim(attempt);
    rivals = tally_.OpenRivals(attempt);
    attempts_[attempt].response_bytes += bytes;
    result_.response_bytes += bytes;
  }
  for (size_t rival : rivals) group.CancelCall(rival);
  return absl::OkStatus();
}

FanOutRun::Consequence FanOutRun::Settle(size_t attempt, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  // Nobody here has cancelled: the owner is being destroyed, and has.
  if (!decided_ && absl::IsCancelled(status) && core_.closing()) {
    decided_ = true;
    result_.status = absl::CancelledError("the FanOut was destroyed");
  }
  Consequence next;
  if (status.ok() && (tally_.Claimed(attempt) || (!decided_ && tally_.Claim(attempt)))) {
    SettleAnswer(attempt);
  } else if (decided_ || status.ok()) {
    tally_.OnDropped(attempt);
  } else {
    next.retry = SettleFailure(attempt, status);
  }
  next.enough = Decide();
  return next;
}

void FanOutRun::SettleAnswer(size_t attempt) {
  tally_.OnAnswered(attempt);
  history_->ObserveResponse(attempts_[attempt].response_bytes);
  ObserveLatency(attempt);
}

// Where nobody has said before that it is ready.
void FanOutRun::ObserveLatency(size_t attempt) {
  const TimePoint sent = attempts_[attempt].sent;
  if (tally_.attempt(attempt).ready || sent == TimePoint()) return;
  history_->ObserveLatency(absl::FromChrono(Now() - sent));
}

std::optional<GroupCall> FanOutRun::SettleFailure(size_t attempt, const absl::Status& status) {
  const size_t ask = tally_.attempt(attempt).ask;
  // Somebody else was faster; this one would have taken at least so long. Left out, the slow ones would be missing from
  // the quantile, and each hedge would make the next one come sooner.
  if (!tally_.Wanted(attempt)) ObserveLatency(attempt);
  WorkerFailure& failure = failure_by_ask_[ask];
  if (failure.status.ok() || !absl::IsCancelled(status)) {
    failure = {.primary = spec_.asks[ask].workers.front(), .worker = tally_.attempt(attempt).worker, .status = status};
  }
  FanOutTally::Next next = tally_.OnFailed(attempt);
  if (next == FanOutTally::Next::kRetry) {
    if (Now() < deadline_) return NextCall(ask, /*hedge=*/false);
    tally_.GiveUp(ask);
    next = FanOutTally::Next::kAskFailed;
  }
  if (next == FanOutTally::Next::kAskFailed) result_.failures.push_back(failure);
  return std::nullopt;
}

// True when nothing that is under way is needed any more, once.
bool FanOutRun::Decide() {
  if (decided_) return false;
  if (tally_.too_many_failures()) {
    result_.status = Describe(result_.failures.back());
  } else if (!tally_.enough()) {
    return false;
  }
  decided_ = true;
  return true;
}

absl::Status FanOutRun::Describe(const WorkerFailure& failure) const {
  return absl::Status(failure.status.code(),
                      absl::StrCat("worker ", failure.worker, " (", core_.channels().address(failure.worker),
                                   "): ", failure.status.message()));
}

void FanOutRun::OnEnd() {
  FanOutResult result;
  std::shared_ptr<CallGroup> group;
  std::shared_ptr<boost::asio::steady_timer> timer;
  {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    group = std::move(group_);
    timer = std::move(hedge_timer_);
    hedge_times_.clear();
    result_.answered = tally_.answered();
    result_.cancelled = result_.asked - result_.answered - result_.failures.size();
    result_.retries = tally_.retries();
    result_.hedges = tally_.hedges();
    result_.hedges_won = tally_.hedges_won();
    result = std::move(result_);
  }
  if (timer) boost::asio::post(core_.link().io_context(), [timer = std::move(timer)] { timer->cancel(); });
  AggregatorMetrics& metrics = core_.metrics();
  metrics.CountHedges(HedgeOutcome::kWon, result.hedges_won);
  metrics.CountHedges(HedgeOutcome::kLost, result.hedges - result.hedges_won);
  metrics.CountBlock(OutcomeOf(result));
  metrics.ObserveBlock(absl::FromChrono(Now() - started_), result.Coverage());
  // What they hold may hold the handle of this fan-out.
  spec_.merge = nullptr;
  const FanOut::Done done = std::exchange(spec_.done, nullptr);
  done(std::move(result));
}

void FanOutRun::Cancel() {
  std::shared_ptr<CallGroup> group;
  {
    absl::MutexLock lock(&mutex_);
    if (decided_ || ended_) return;
    decided_ = true;
    result_.status = absl::CancelledError("the fan-out was cancelled");
    group = group_;
  }
  if (group) group->Cancel();
}

// One timer for all: they wait equally long, so the first one sent is the first one due.
void FanOutRun::ArmHedgeTimer(TimePoint due) {
  boost::asio::post(core_.link().io_context(), [due, weak = weak_from_this()] {
    const auto run = weak.lock();
    const auto timer = run ? run->HedgeTimer() : nullptr;
    if (!timer) return;
    timer->expires_at(due);
    timer->async_wait([timer, weak](const boost::system::error_code& error) {
      if (error) return;
      if (auto self = weak.lock()) self->OnHedgeTimer();
    });
  });
}

std::shared_ptr<boost::asio::steady_timer> FanOutRun::HedgeTimer() {
  absl::MutexLock lock(&mutex_);
  return hedge_timer_;
}

void FanOutRun::OnHedgeTimer() {
  const TimePoint now = Now();
  std::vector<GroupCall> hedges;
  std::optional<TimePoint> next;
  std::shared_ptr<CallGroup> group;
  {
    absl::MutexLock lock(&mutex_);
    group = group_;
    for (; !hedge_times_.empty() && hedge_times_.front().due <= now; hedge_times_.pop_front()) {
      const size_t attempt = hedge_times_.front().attempt;
      if (!group || decided_ || !tally_.MayHedge(attempt)) continue;
      if (core_.TakeHedge()) {
        hedges.push_back(*NextCall(tally_.attempt(attempt).ask, /*hedge=*/true));
      } else {
        core_.metrics().CountHedges(HedgeOutcome::kRefused, 1);
      }
    }
    hedge_timer_armed_ = !hedge_times_.empty();
    if (hedge_timer_armed_) next = hedge_times_.front().due;
  }
  if (next.has_value()) ArmHedgeTimer(*next);
  for (GroupCall& hedge : hedges) {
    const size_t attempt = hedge.tag;
    if (!group->Add(std::move(hedge))) continue;
    bool wanted = false;
    {
      absl::MutexLock lock(&mutex_);
      wanted = !decided_ && tally_.Wanted(attempt);
    }
    // The other one has answered meanwhile, and found no rival to cancel.
    if (!wanted) group->CancelCall(attempt);
  }
}

}  // namespace sluice
