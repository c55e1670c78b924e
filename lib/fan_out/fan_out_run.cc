#include "lib/fan_out/fan_out_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/link/link_metrics.h"
#include "lib/scheduling/limit_status.h"

namespace sluice {
namespace {

std::vector<std::vector<size_t>> WorkersByAsk(const std::vector<FanOutRun::Ask>& asks) {
  std::vector<std::vector<size_t>> workers;
  workers.reserve(asks.size());
  for (const FanOutRun::Ask& ask : asks) workers.push_back(ask.workers);
  return workers;
}

FanOutLogic::Options LimitsOf(const FanOutRun::Spec& spec, MethodHistory& history) {
  FanOutLogic::Options limits = spec.limits;
  if (spec.hedge_after_quantile.has_value()) limits.hedge_after = history.Latency(*spec.hedge_after_quantile);
  return limits;
}

// The status of a call as its span has it: an attempt that was not needed, or whose response was refused, may have
// ended with OK.
absl::StatusCode StatusCodeOf(CallOutcome outcome, const absl::Status& end) {
  switch (outcome) {
    case CallOutcome::kOk:
      return absl::StatusCode::kOk;
    case CallOutcome::kCancelled:
      return absl::StatusCode::kCancelled;
    case CallOutcome::kCorrupt:
      return absl::StatusCode::kDataLoss;
    case CallOutcome::kRpcDeadline:
    case CallOutcome::kExpired:
      return absl::StatusCode::kDeadlineExceeded;
    case CallOutcome::kRpcError:
      break;
  }
  return end.code();
}

// The metadata of one ask come after the metadata of all. Both may be null.
absl::string_view TraceparentIn(const Metadata* of_ask, const Metadata* of_all) {
  for (const Metadata* metadata : {of_ask, of_all}) {
    if (metadata == nullptr) continue;
    for (const auto& [key, value] : *metadata) {
      if (key == "traceparent") return value;
    }
  }
  return "";
}

}  // namespace

std::shared_ptr<FanOutRun> FanOutRun::Make(FanOutState& state, Spec spec, std::shared_ptr<Sink> sink) {
  return std::shared_ptr<FanOutRun>(new FanOutRun(state, std::move(spec), std::move(sink)));
}

FanOutRun::FanOutRun(FanOutState& state, Spec spec, std::shared_ptr<Sink> sink)
    : state_(state),
      spec_(std::move(spec)),
      sink_(std::move(sink)),
      history_(state.History(spec_.path)),
      started_(state.link().now()),
      logic_(LimitsOf(spec_, history_), WorkersByAsk(spec_.asks)) {
  attempts_.reserve(spec_.asks.size());
}

// Submits the first requests to the schedule as one block.
void FanOutRun::Begin() {
  state_.Enter(shared_from_this());
  applying_ = true;
  logic_.Start(started_, actions_);
  std::vector<size_t> attempts;
  for (const FanOutAction& action : actions_) {
    if (action.kind == FanOutAction::Kind::kSend) attempts.push_back(action.attempt);
  }
  actions_.erase(std::remove_if(actions_.begin(), actions_.end(),
                                [](const auto& action) { return action.kind == FanOutAction::Kind::kSend; }),
                 actions_.end());
  if (state_.closing()) logic_.Cancel(started_, state_.why_closing(), actions_);
  if (!attempts.empty()) SubmitAll(attempts);
  applying_ = false;
  Drive([](FanOutLogic&, TimePoint, FanOutActions&) {});
}

template <class Event>
void FanOutRun::Drive(Event event) {
  event(logic_, state_.link().now(), actions_);
  state_.link().schedule_run().ReportBreaches(logic_.breaches());
  state_.link().metrics().CountHedges(HedgeOutcome::kRefused, logic_.result().hedges_refused - hedges_refused_);
  hedges_refused_ = logic_.result().hedges_refused;
  if (applying_) return;
  const auto self = shared_from_this();
  applying_ = true;
  TellFailures();
  for (size_t next = 0; next < actions_.size(); ++next) {
    Apply(FanOutAction(actions_[next]));
    TellFailures();
  }
  actions_.clear();
  applying_ = false;
  ArmTimer();
}

// OnAskFailed may cause further failures.
void FanOutRun::TellFailures() {
  while (sink_ != nullptr && failures_told_ < logic_.result().failures.size()) {
    sink_->OnAskFailed(FanOutLogic::Failure(logic_.result().failures[failures_told_++]));
  }
}

void FanOutRun::Apply(const FanOutAction& action) {
  switch (action.kind) {
    case FanOutAction::Kind::kSend:
      return SubmitOne(action.attempt);
    case FanOutAction::Kind::kAccept:
      return sink_->Accept(action.attempt, attempts_[action.attempt].messages.Accept(action.messages));
    case FanOutAction::Kind::kDrop:
      return attempts_[action.attempt].messages.Drop(action.messages);
    case FanOutAction::Kind::kCancel:
      if (ScheduledStream* const call = attempts_[action.attempt].call) {
        attempts_[action.attempt].cancelled = true;
        state_.link().CancelCall(*call, WhyCancelled());
      }
      return;
    case FanOutAction::Kind::kEnd:
      return End();
  }
}

ScheduledStream& FanOutRun::Launch(size_t attempt) {
  const Attempt& made = logic_.attempt(attempt);
  const Ask& ask = spec_.asks[made.ask];
  attempts_.resize(std::max(attempts_.size(), attempt + 1));
  std::optional<int64_t> bytes = ask.response_bytes;
  if (!bytes.has_value()) bytes = history_.ResponseBytes();
  if (!bytes.has_value()) bytes = MethodHistory::FirstResponseBytes(state_.link().schedule().options().profile);
  std::shared_ptr<const std::string> request = sink_->RequestOf(attempt);
  if (made.retry) state_.link().metrics().CountCallRetry();
  ScheduledStream& call = WireCall::Make(state_.link(),
                                         {.worker = spec_.workers->workers[made.worker],
                                          .path = spec_.path,
                                          .server_streaming = spec_.server_streaming,
                                          .may_idle = spec_.may_idle,
                                          .request = request != nullptr ? std::move(request) : ask.request,
                                          .gzip_request = spec_.gzip_requests,
                                          .response_bytes = *bytes,
                                          .max_message_bytes = spec_.max_message_bytes,
                                          .metadata = spec_.metadata,
                                          .more_metadata = ask.metadata,
                                          .deadline = spec_.limits.deadline,
                                          .tag = attempt,
                                          .memory = spec_.memory},
                                         *this);
  attempts_[attempt].call = &call;
  attempts_[attempt].began_at = state_.link().now();
  return call;
}

void FanOutRun::SubmitAll(const std::vector<size_t>& attempts) {
  std::vector<ScheduledStream*> calls;
  calls.reserve(attempts.size());
  for (size_t attempt : attempts) calls.push_back(&Launch(attempt));
  BlockId block = 0;
  const absl::Status submitted = state_.link().Submit(calls, spec_.limits.deadline, block, spec_.traffic_class);
  if (submitted.ok()) {
    block_ = block;
    return;
  }
  refused_ = absl::IsResourceExhausted(submitted);
  logic_.Cancel(started_, submitted, actions_);
  for (size_t attempt : attempts) {
    attempts_[attempt].call = nullptr;
    OnEnded(attempt, {.status = submitted});
  }
}

// A retry or a hedge takes its block's place in the queue. A block ends with its last call, so a retry of a last call
// that was never sent gets a block of its own.
void FanOutRun::SubmitOne(size_t attempt) {
  ScheduledStream* call = &Launch(attempt);
  absl::Status submitted = absl::NotFoundError("no block");
  if (block_.has_value()) submitted = state_.link().Add(*block_, *call);
  if (absl::IsNotFound(submitted)) {
    if (block_.has_value()) call = &Launch(attempt);
    BlockId block = 0;
    submitted = state_.link().Submit({call}, spec_.limits.deadline, block, spec_.traffic_class);
    if (submitted.ok()) block_ = block;
  }
  if (submitted.ok()) return;
  attempts_[attempt].call = nullptr;
  OnEnded(attempt, {.status = submitted});
}

// A request that its worker did not process is sent again as the same attempt.
void FanOutRun::OnSent(size_t attempt) {
  attempts_[attempt].sent_at = state_.link().now();
  if (std::exchange(attempts_[attempt].sent, true)) return;
  sink_->OnSent(attempt);
  Drive([attempt](FanOutLogic& logic, TimePoint now, FanOutActions& actions) { logic.OnSent(now, attempt, actions); });
}

void FanOutRun::OnReady(size_t attempt, std::chrono::nanoseconds ready_after) {
  history_.ObserveLatency(absl::FromChrono(ready_after));
  attempts_[attempt].ready_after = ready_after;
  const size_t row = spec_.workers->workers[logic_.attempt(attempt).worker]->row();
  state_.worker_history().OnReady(state_.link().now(), row, absl::FromChrono(ready_after));
  Drive([attempt](FanOutLogic& logic, TimePoint now, FanOutActions& actions) { logic.OnReady(now, attempt, actions); });
}

// A held response needs no action, only a different timer.
void FanOutRun::OnHeld(size_t attempt, HeldFor held_for) {
  logic_.OnHeld(state_.link().now(), attempt, held_for);
  if (!applying_) ArmTimer();
}

void FanOutRun::OnMessage(size_t attempt, WireMessage message) {
  KeptMessages& messages = attempts_[attempt].messages;
  if (spec_.server_streaming) messages.CountIn(spec_.memory.get());
  messages.Add(std::move(message));
  Drive(
      [attempt](FanOutLogic& logic, TimePoint now, FanOutActions& actions) { logic.OnMessage(now, attempt, actions); });
}

void FanOutRun::Accepted(size_t attempt, const absl::Status& verdict, size_t bytes) {
  AttemptState& state = attempts_[attempt];
  const int64_t wire_bytes = state.messages.Settle();
  if (verdict.ok()) {
    state.bytes += wire_bytes;
    accepted_bytes_ += static_cast<int64_t>(bytes);
  }
  Drive([&](FanOutLogic& logic, TimePoint now, FanOutActions& actions) {
    logic.OnAccepted(now, attempt, verdict, actions);
    CountEnded(attempt);
  });
}

void FanOutRun::OnEnded(size_t attempt, RpcEnd end) {
  const ScheduledStream* const call = std::exchange(attempts_[attempt].call, nullptr);
  attempts_[attempt].expired = call != nullptr && call->expired;
  attempts_[attempt].ended_at = state_.link().now();
  absl::Status status = end.status;
  attempts_[attempt].end = std::move(end);
  if (status.ok() && !logic_.decided()) {
    status = sink_->Complete(attempt);
    attempts_[attempt].corrupt = !status.ok();
  }
  if (status.ok() && !spec_.server_streaming) attempts_[attempt].messages.CountIn(spec_.memory.get());
  Drive([&](FanOutLogic& logic, TimePoint now, FanOutActions& actions) {
    logic.OnEnded(now, attempt, status, actions);
    CountEnded(attempt);
  });
}

// The outcome of an attempt is final after it has ended and its last message is settled. An attempt that was not needed
// may get its outcome later, when the fan-out is decided.
void FanOutRun::CountEnded(size_t attempt) {
  AttemptState& state = attempts_[attempt];
  const Attempt& made = logic_.attempt(attempt);
  if (!made.outcome.has_value() || std::exchange(state.counted, true)) return;
  const TimePoint now = state_.link().now();
  const size_t row = spec_.workers->workers[made.worker]->row();
  const CallOutcome outcome = state.OutcomeOf(*made.outcome);
  state_.link().metrics().CountCall(outcome);
  JudgeWorker(state, made, outcome);
  if (state_.on_access() != nullptr) Record(attempt, outcome);
  switch (outcome) {
    case CallOutcome::kOk:
      history_.ObserveResponse(state.bytes);
      state_.worker_history().OnResponse(now, row);
      break;
    case CallOutcome::kRpcDeadline:
      state_.link().metrics().CountTimeout(TimeoutKind::kRpcDeadline);
      [[fallthrough]];
    case CallOutcome::kRpcError:
    case CallOutcome::kCorrupt:
      state_.worker_history().OnFailed(now, row);
      break;
    case CallOutcome::kExpired:
      // The stream has counted a request that was not sent.
      if (state.sent) state_.link().metrics().CountTimeout(TimeoutKind::kQueueDeadline);
      break;
    default:
      break;
  }
}

// A worker that alone can answer an ask is never avoided, so its calls do not count.
void FanOutRun::JudgeWorker(const AttemptState& state, const Attempt& made, CallOutcome outcome) const {
  if (!state.sent || outcome == CallOutcome::kExpired || spec_.asks[made.ask].workers.size() == 1) return;
  const std::chrono::nanoseconds took = state.ready_after.value_or(state_.link().now() - state.sent_at);
  state_.ejections().OnEnded(
      {.method = spec_.path,
       .worker = spec_.workers->workers[made.worker]->row(),
       .sent = state.sent_at,
       .end = OutlierEjection::EndOf(StatusCodeOf(outcome, state.end.status), state.ready_after.has_value(),
                                     outcome != CallOutcome::kCancelled),
       .took = took});
}

void FanOutRun::Record(size_t attempt, CallOutcome outcome) const {
  const AttemptState& state = attempts_[attempt];
  const Attempt& made = logic_.attempt(attempt);
  const auto& classes = state_.link().schedule().options().classes;
  const std::string limit = LimitOf(state.end.status);
  AccessRecord record{.method = spec_.path,
                      .worker = address(made.worker),
                      .took = absl::FromChrono(state.ended_at - state.began_at),
                      .response_bytes = state.bytes,
                      .outcome = limit.empty() ? StatusCodeOf(outcome, state.end.status) : state.end.status.code(),
                      .limit = limit,
                      .traceparent = TraceparentIn(spec_.asks[made.ask].metadata.get(), spec_.metadata.get())};
  if (spec_.traffic_class < classes.size()) record.traffic_class = classes[spec_.traffic_class].name;
  if (state.sent) {
    record.waited = absl::FromChrono(state.sent_at - state.began_at);
    record.granted = absl::FromChrono(made.of_link);
  }
  if (state.ready_after.has_value()) {
    record.ready = absl::FromChrono(*state.ready_after);
    record.received = record.took - record.waited - record.ready;
  }
  state_.on_access()(record);
}

void FanOutRun::Cancel(const absl::Status& why) {
  if (sink_ == nullptr) return;
  Drive([&](FanOutLogic& logic, TimePoint now, FanOutActions& actions) { logic.Cancel(now, why, actions); });
}

// After the deadline, the deadline is the reason of a cancellation, even if a different event comes first.
absl::Status FanOutRun::WhyCancelled() const {
  if (state_.link().now() < spec_.limits.deadline) return absl::CancelledError("not needed any more");
  return absl::DeadlineExceededError("the deadline passed");
}

CallOutcome FanOutRun::AttemptState::OutcomeOf(AttemptOutcome outcome) const {
  const bool late = absl::IsDeadlineExceeded(end.status);
  switch (outcome) {
    case AttemptOutcome::kResponded:
      return CallOutcome::kOk;
    case AttemptOutcome::kRefused:
      return CallOutcome::kCorrupt;
    case AttemptOutcome::kExpired:
      return CallOutcome::kExpired;
    case AttemptOutcome::kNotNeeded:
      return late && !sent ? CallOutcome::kExpired : CallOutcome::kCancelled;
    case AttemptOutcome::kFailed:
      if (expired) return CallOutcome::kExpired;
      if (corrupt) return CallOutcome::kCorrupt;
      // It was cancelled because it took too long.
      return late || cancelled ? CallOutcome::kRpcDeadline : CallOutcome::kRpcError;
  }
  return CallOutcome::kRpcError;
}

void FanOutRun::ArmTimer() {
  const TimePoint next = sink_ == nullptr ? TimePoint::max() : logic_.NextTimer();
  if (timer_.first == next && timer_.second != 0) return;
  state_.link().timers().Clear(timer_);
  if (next == TimePoint::max()) return;
  timer_ = state_.link().timers().Set(next, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->timer_ = TimerQueue::Id();
    self->Drive([](FanOutLogic& logic, TimePoint now, FanOutActions& actions) { logic.OnTimer(now, actions); });
  });
}

void FanOutRun::End() {
  state_.link().timers().Clear(timer_);
  // Count the attempts that had ended before the decision made them unnecessary.
  for (size_t attempt = 0; attempt < attempts_.size(); ++attempt) CountEnded(attempt);
  const auto self = shared_from_this();
  state_.Leave(*this);
  // The sink may hold the run, and the sink's callbacks may hold the sink.
  const std::shared_ptr<Sink> sink = std::move(sink_);
  const FanOutLogic::Result& result = logic_.result();
  LinkMetrics& metrics = state_.link().metrics();
  metrics.CountHedges(HedgeOutcome::kWon, result.hedges_won);
  metrics.CountHedges(HedgeOutcome::kLost, result.hedges - result.hedges_won);
  sink->OnEnd(*this);
}

absl::Status FanOutRun::Describe(const FanOutLogic::Failure& failure) const {
  // gRPC's servers do not say which method they lack.
  const bool lacks_method = absl::IsUnimplemented(failure.status) && failure.status.message().empty();
  return absl::Status(failure.status.code(),
                      absl::StrCat("worker ", failure.worker, " (", address(failure.worker), "): ",
                                   lacks_method ? absl::StrCat("it has no method ", spec_.path)
                                                : std::string(failure.status.message())));
}

std::string FanOutRun::StatusDetailsOf(const FanOutLogic::Failure& failure) const {
  return failure.attempt.has_value() ? attempts_[*failure.attempt].end.status_details : "";
}

}  // namespace sluice
