#include "lib/link/link_loop.h"

#include <algorithm>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "lib/scheduling/budget.h"
#include "lib/scheduling/limit_status.h"

namespace sluice {
namespace {

// A frame header of HTTP/2 (9 bytes) in a record of TLS 1.3 (22 bytes: RFC 8446, section 5.2).
constexpr int64_t kTlsOverheadBytes = 31;

absl::Status CheckQueuedBytes(ScheduleRun& run, absl::Span<ScheduledStream* const> calls) {
  int64_t bytes = 0;
  for (const ScheduledStream* call : calls) bytes += call->request_bytes;
  const int64_t bound = run.schedule().options().queue_bytes;
  const int64_t waiting_bytes = run.queued_bytes().all();
  if (bytes == 0 || bytes <= bound - waiting_bytes) return absl::OkStatus();
  return AtLimit("schedule.queue_bytes", absl::StrCat("the queue has no room for ", bytes, " bytes of requests: ",
                                                      waiting_bytes, " wait, queue_bytes is ", bound));
}

}  // namespace

LinkLoop::LinkLoop(Executor& executor, const ScheduleOptions& schedule, LinkMetrics& metrics)
    : executor_(executor),
      metrics_(metrics),
      callback_memory_(timers_, metrics, [&executor] { return executor.Now(); }),
      schedule_run_(executor, schedule, metrics),
      workers_(*this) {
  const int64_t budget_bytes = schedule.budget_bytes.value_or(BufferBudgetBytes(schedule.profile));
  callback_memory_.SetBound(CallbackMemory::DefaultBytes(budget_bytes));
  SetPatience();
  executor_.SetEndOfTurn([this] { EndTurn(); });
}

// Calls may be out after their owners have gone: see ScheduledStream::Abandon. They must end while the members that
// they use still exist.
LinkLoop::~LinkLoop() {
  executor_.SetEndOfTurn(nullptr);
  workers_.CloseAll();
  schedule_run_.Stop();
  calls_.clear();
  // A remaining task may hold the last reference to a worker. The pool then has an unused worker.
  do {
    std::exchange(at_end_, {}).clear();
    FreeGarbage();
  } while (!at_end_.empty());
  executor_.SetTimer(TimePoint::max(), nullptr);
}

ScheduledStream& LinkLoop::Take(std::unique_ptr<ScheduledStream> call) {
  calls_.push_back(std::move(call));
  calls_.back()->position_ = calls_.size() - 1;
  return *calls_.back();
}

absl::Status LinkLoop::Submit(absl::Span<ScheduledStream* const> calls, TimePoint deadline, BlockId& block,
                              size_t traffic_class) {
  std::vector<CallRequest> requests;
  requests.reserve(calls.size());
  for (ScheduledStream* call : calls) requests.push_back(call->Request());
  absl::Status status = CheckQueuedBytes(schedule_run_, calls);
  if (status.ok()) status = schedule_run_.Submit(requests, deadline, block, traffic_class);
  if (!status.ok()) {
    if (absl::IsResourceExhausted(status)) metrics_.CountQueueRefusals(QueueRefusal::kFull, calls.size());
    for (ScheduledStream* call : calls) Forget(*call);
    return status;
  }
  for (size_t i = 0; i < calls.size(); ++i) OnQueued(*calls[i], requests[i].parked);
  return absl::OkStatus();
}

// The event that queued the call may have sent it, ended it, or parked it at its worker.
void LinkLoop::OnQueued(ScheduledStream& call, bool parked) {
  if (!call.unsent()) return;
  queue_timeout_.Enter(call);
  if (call.WaitHook::is_linked()) return;
  if (parked) {
    Worker& worker = call.worker();
    worker.Wait(call);
    return worker.OnStreamUnused();  // there may be a stream since the call was submitted
  }
  if (const absl::Status room = call.worker().CheckRoom(call); !room.ok()) Refuse(call, QueueRefusal::kWorker, room);
}

absl::Status LinkLoop::Add(BlockId block, ScheduledStream& call) {
  const CallRequest request = call.Request();
  absl::Status status = schedule_run_.Add(block, request);
  if (!status.ok()) {
    Forget(call);
  } else {
    OnQueued(call, request.parked);
  }
  return status;
}

void LinkLoop::Refuse(ScheduledStream& call, QueueRefusal reason, const absl::Status& why) {
  metrics_.CountQueueRefusals(reason, 1);
  CancelCall(call, why);
}

void LinkLoop::CancelCall(ScheduledStream& call, const absl::Status& why) {
  if (!call.Abandon(why)) schedule_run_.CancelCall(call.id());
}

void LinkLoop::Park(ScheduledStream& call) {
  schedule_run_.OnUnsent(call.id());
  if (call.over()) return;
  queue_timeout_.Enter(call);
  call.worker().Wait(call);
}

void LinkLoop::Resume(ScheduledStream& call) {
  call.waits_for_room = false;
  schedule_run_.Unpark(call.id());
}

void LinkLoop::Finish(ScheduledStream& call, CallEnd end) {
  schedule_run_.OnFinished(call.id(), end);
  Forget(call);
}

void LinkLoop::Forget(ScheduledStream& call) {
  const size_t position = call.position_;
  ended_calls_.push_back(std::move(calls_[position]));
  if (position + 1 < calls_.size()) {
    calls_[position] = std::move(calls_.back());
    calls_[position]->position_ = position;
  }
  calls_.pop_back();
}

void LinkLoop::Bury(std::unique_ptr<Connection> connection) {
  if (connection != nullptr) buried_.push_back(std::move(connection));
}

absl::Status LinkLoop::SetBudget(int64_t budget_bytes) {
  absl::Status status = schedule_run_.SetBudget(budget_bytes);
  SetPatience();
  return status;
}

// With TLS, a part of a response must fill its packets including the TLS record. Workers without TLS lose 22 of several
// thousand bytes per part. Rejected: an overhead for each call in the schedule, which is not worth that.
absl::Status LinkLoop::Reconfigure(ScheduleOptions options) {
  if (workers_.uses_tls()) options.record_overhead_bytes = std::max(options.record_overhead_bytes, kTlsOverheadBytes);
  absl::Status status = schedule_run_.Reconfigure(options);
  SetPatience();
  queue_timeout_.OnOptionsChanged();
  return status;
}

absl::Status LinkLoop::SetLease(const BudgetLease& lease) {
  absl::Status status = schedule_run_.SetLease(lease);
  SetPatience();
  return status;
}

// Use the time of stalls for the patience: the schedule also stops charging granted bytes that are later than that. A
// part of a response is up to a third of the budget, and comes within a drain time if its worker keeps up. The slowest
// such worker therefore needs three drain times for a budget.
void LinkLoop::SetPatience() {
  constexpr int kDrainTimes = 8;  // for each budget of a message
  const ScheduleOptions& options = schedule().options();
  const bool limited = options.policy != SchedulePolicy::kUnscheduled;
  const int64_t budget_bytes =
      limited ? std::max<int64_t>(schedule().State().plan_bytes, 1) : BufferBudgetBytes(options.profile);
  const CallbackMemory::ByteTime drain_time = DrainTime(options.profile, budget_bytes);
  callback_memory_.SetPatience(
      absl::ToChronoNanoseconds(options.stall_timeout + options.profile.propagation_rtt),
      std::min<CallbackMemory::ByteTime>(kDrainTimes * drain_time / static_cast<double>(budget_bytes),
                                         std::chrono::seconds(1)));
}

void LinkLoop::EndTurn() {
  const TimePoint time = now();
  timers_.RunDue(time);
  schedule_run_.OnTimer(time);
  // Repeat until nothing is left: tasks, writes and destructors may cause more of each, and the next turn may be far
  // away.
  do {
    for (size_t next = 0; next < at_end_.size(); ++next) std::exchange(at_end_[next], nullptr)();
    at_end_.clear();
    flushes_.FlushAll();
    FreeGarbage();
  } while (!at_end_.empty() || !flushes_.empty());
  schedule_run_.ReportDemand(time);
  // A late timer never lets anything pass that was not due, so the next turn may also come early and find nothing.
  executor_.SetTimer(std::min(timers_.next(), schedule().NextTimer()), [] {});
}

// Destroyed objects may release further objects.
void LinkLoop::FreeGarbage() {
  while (!ended_calls_.empty() || !buried_.empty() || workers_.has_unused()) {
    std::exchange(ended_calls_, {}).clear();
    std::exchange(buried_, {}).clear();
    workers_.FreeUnused();
  }
}

}  // namespace sluice
