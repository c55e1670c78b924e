#include "lib/rpc/fan_out_run.h"

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
      hedge_timer_(hedge_after_.has_value() ? std::make_shared<boost::asio::steady_timer>(core.link().io_context())
                                            : nullptr),
      tally_(LimitsOf(spec_.options), WorkersByAsk(spec_.asks)),
      failure_by_ask_(spec_.asks.size()) {}

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
  {
    absl::MutexLock lock(&mutex_);
    if (!group.ok()) {
      decided_ = true;
      result_.status = group.status();
    } else if (!ended_) {
      group_ = *group;
      cancelled = decided_;
    }
  }
  if (!group.ok()) return OnEnd();
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
  return {.stub = &core_.channels().stub(made.worker),
          .method = spec_.method,
          .server_streaming = spec_.server_streaming,
          .request = ask.request,
          .response_bytes = bytes.value_or(core_.link().options().profile.buffer_bytes / kFirstAnswerShare),
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
    if (std::exchange(hedge_timer_armed_, true)) return;
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
  if (!answer.ok()) {
    absl::Status status = answer.status();
    {
      absl::MutexLock lock(&mutex_);
      if (!attempts_[attempt].refused.ok()) status = attempts_[attempt].refused;
    }
    Settle(group, attempt, status);
    return status;
  }
  absl::MutexLock merging(&merging_);
  const absl::Status status = spec_.server_streaming ? absl::OkStatus() : Deliver(group, attempt, *answer);
  Settle(group, attempt, status);
  return status;
}

absl::Status FanOutRun::Deliver(CallGroup& group, size_t attempt, grpc::ByteBuffer& message) {
  const auto bytes = static_cast<int64_t>(message.Length());
  size_t worker = 0;
  bool replica = false;
  std::vector<size_t> rivals;
  {
    absl::MutexLock lock(&mutex_);
    if (!attempts_[attempt].refused.ok()) return attempts_[attempt].refused;
    if (decided_ || !tally_.Claim(attempt)) return absl::CancelledError("not needed any more");
    rivals = tally_.OpenRivals(attempt);
    worker = tally_.attempt(attempt).worker;
    replica = worker != spec_.asks[tally_.attempt(attempt).ask].workers.front();
  }
  for (size_t rival : rivals) group.CancelCall(rival);
  if (absl::Status merged = spec_.merge(worker, message); !merged.ok()) return merged;
  core_.metrics().AddGoodput(static_cast<uint64_t>(bytes), replica ? WorkerKind::kReplica : WorkerKind::kPrimary);
  absl::MutexLock lock(&mutex_);
  attempts_[attempt].merged = true;
  attempts_[attempt].response_bytes += bytes;
  result_.response_bytes += bytes;
  return absl::OkStatus();
}

void FanOutRun::Settle(CallGroup& group, size_t attempt, const absl::Status& status) {
  std::optional<GroupCall> retry;
  bool enough = false;
  {
    absl::MutexLock lock(&mutex_);
    if (status.ok() && (attempts_[attempt].merged || (!decided_ && tally_.Claim(attempt)))) {
      SettleAnswer(attempt);
    } else if (decided_ || status.ok()) {
      tally_.OnDropped(attempt);
    } else {
      retry = SettleFailure(attempt, status);
    }
    enough = Decide();
  }
  // A retry first: it keeps the block alive.
  if (retry.has_value()) group.Add(*std::move(retry));
  if (enough) group.Cancel();
}

void FanOutRun::SettleAnswer(size_t attempt) {
  tally_.OnAnswered(attempt);
  history_->ObserveResponse(attempts_[attempt].response_bytes);
  if (!tally_.attempt(attempt).ready) history_->ObserveLatency(absl::FromChrono(Now() - attempts_[attempt].sent));
}

std::optional<GroupCall> FanOutRun::SettleFailure(size_t attempt, const absl::Status& status) {
  const size_t ask = tally_.attempt(attempt).ask;
  WorkerFailure& failure = failure_by_ask_[ask];
  if (failure.status.ok() || !absl::IsCancelled(status)) failure = {tally_.attempt(attempt).worker, status};
  FanOutTally::Next next = tally_.OnFailed(attempt, attempts_[attempt].merged);
  if (next == FanOutTally::Next::kRetry) {
    if (Now() < deadline_ && !absl::IsCancelled(failure.status)) return NextCall(ask, /*hedge=*/false);
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
  {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    group = std::move(group_);
    result_.answered = tally_.answered();
    result_.cancelled = result_.asked - result_.answered - result_.failures.size();
    result_.retries = tally_.retries();
    result_.hedges = tally_.hedges();
    result_.hedges_won = tally_.hedges_won();
    result = std::move(result_);
  }
  if (hedge_timer_) boost::asio::post(core_.link().io_context(), [timer = hedge_timer_] { timer->cancel(); });
  AggregatorMetrics& metrics = core_.metrics();
  metrics.CountHedges(HedgeOutcome::kWon, result.hedges_won);
  metrics.CountHedges(HedgeOutcome::kLost, result.hedges - result.hedges_won);
  metrics.CountBlock(OutcomeOf(result));
  metrics.ObserveBlock(absl::FromChrono(Now() - started_), result.Coverage());
  spec_.done(std::move(result));
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
  boost::asio::post(core_.link().io_context(), [timer = hedge_timer_, due, weak = weak_from_this()] {
    timer->expires_at(due);
    timer->async_wait([timer, weak](const boost::system::error_code& error) {
      if (error) return;
      if (auto self = weak.lock()) self->OnHedgeTimer();
    });
  });
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
