#include "lib/link/link_loop.h"

#include <algorithm>
#include <iterator>

#include "sluice/plan.h"

#include "absl/strings/str_cat.h"
#include "lib/scheduling/budget.h"

namespace sluice {
namespace {

constexpr size_t kMinWorkersToSweep = 64;
// A frame header of HTTP/2 (9 bytes) in a record of TLS 1.3 (22 bytes: RFC 8446, section 5.2).
constexpr int64_t kTlsOverheadBytes = 31;
// Calls on fewer connections are made faster than a worker can respond to the first one.
constexpr size_t kMinToFlushEarly = 8;

Scheduled& ScheduledOf(const Action& action) {
  return *reinterpret_cast<Scheduled*>(static_cast<uintptr_t>(action.tag));
}

}  // namespace

LinkLoop::LinkLoop(Executor& executor, const ScheduleOptions& schedule, LinkMetrics& metrics)
    : executor_(executor),
      metrics_(metrics),
      callback_memory_(timers_, metrics, [&executor] { return executor.Now(); }),
      schedule_(schedule) {
  const ScheduleOptions& options = schedule_.options();
  SetCallbackMemory(CallbackMemory::DefaultBytes(options.budget_bytes.value_or(BufferBudgetBytes(options.profile))));
  SetPatience();
  session_options_.stream_window_bytes = static_cast<uint32_t>(StreamWindow::kFirstBytes);
  executor_.SetEndOfTurn([this] { EndTurn(); });
}

// Calls may be out after their owners have gone: see ScheduledStream::Abandon. They must end while the members that
// they use still exist.
LinkLoop::~LinkLoop() {
  executor_.SetEndOfTurn(nullptr);
  std::vector<std::shared_ptr<Worker>> workers;
  for (const auto& [key, known] : workers_by_target_) {
    if (auto worker = known.lock()) workers.push_back(std::move(worker));
  }
  for (const auto& worker : workers) worker->Close();
  workers.clear();
  applying_ = true;  // further actions of the schedule are not carried out
  calls_.clear();
  // A remaining task may hold the last reference to a worker. The worker then moves to unused_workers_.
  do {
    std::exchange(at_end_, {}).clear();
    FreeGarbage();
  } while (!at_end_.empty());
  executor_.SetTimer(TimePoint::max(), nullptr);
}

std::shared_ptr<Worker> LinkLoop::FindWorker(const std::string& target, std::shared_ptr<TlsContext> tls,
                                             const std::string& server_name) {
  // Sweep rarely: sweeping for each of ten thousand workers takes seconds.
  if (workers_by_target_.size() >= sweep_workers_at_) {
    std::erase_if(workers_by_target_, [](const auto& entry) { return entry.second.expired(); });
    sweep_workers_at_ = std::max(kMinWorkersToSweep, 2 * workers_by_target_.size());
  }
  std::weak_ptr<Worker>& known = workers_by_target_[{target, server_name, tls.get()}];
  std::shared_ptr<Worker> worker = known.lock();
  if (worker == nullptr) {
    worker = std::shared_ptr<Worker>(new Worker(*this, target, std::move(tls), server_name),
                                     [this](Worker* unused) { unused_workers_.emplace_back(unused); });
    known = worker;
    if (worker->tls() != nullptr) UseTls();
  }
  return worker;
}

// A part of a response must then fill its packets including the TLS record. Workers without TLS lose 22 of several
// thousand bytes per part. Rejected: an overhead for each call in the schedule, which is not worth that.
void LinkLoop::UseTls() {
  if (!std::exchange(uses_tls_, true)) Reconfigure(schedule_.options()).IgnoreError();  // they are valid
}

absl::StatusOr<std::shared_ptr<TlsContext>> LinkLoop::FindTls(const TlsOptions& options) {
  std::erase_if(tls_contexts_, [](const auto& context) { return context.expired(); });
  for (const auto& known : tls_contexts_) {
    if (auto context = known.lock(); context->options() == options) return context;
  }
  auto made = TlsContext::Create(options);
  if (made.ok()) tls_contexts_.push_back(*made);
  return made;
}

// An event changes only the schedule, and is quick. Its actions are carried out afterwards, in order. An action may
// cause new events, whose actions are appended to the queue.
template <class Event>
void LinkLoop::Drive(Event event) {
  event(schedule_, now(), actions_);
  schedule_changed_ = true;
  if (applying_) return;
  applying_ = true;
  for (size_t next = 0; next < actions_.size(); ++next) Apply(Action(actions_[next]));
  actions_.clear();
  applying_ = false;
}

void LinkLoop::Apply(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kSend:
      return ScheduledOf(action).Send(action.call, action.bytes);
    case Action::Kind::kGrant:
      return ScheduledOf(action).Grant(action.bytes);
    case Action::Kind::kStall:
      return metrics_.CountTimeout(TimeoutKind::kStall);
    case Action::Kind::kExpire:
      return ScheduledOf(action).EndUnsent(
          absl::DeadlineExceededError("the deadline passed while the request waited; it was not sent"));
    case Action::Kind::kDrop:
      return ScheduledOf(action).EndUnsent(absl::CancelledError("cancelled while the request waited; it was not sent"));
    case Action::Kind::kAbort:
      return ScheduledOf(action).Abort();
  }
}

ScheduledStream& LinkLoop::Take(std::unique_ptr<ScheduledStream> call) {
  calls_.push_back(std::move(call));
  calls_.back()->set_position(calls_.size() - 1);
  return *calls_.back();
}

absl::Status LinkLoop::Submit(absl::Span<ScheduledStream* const> calls, TimePoint deadline, BlockId& block) {
  std::vector<CallRequest> requests;
  requests.reserve(calls.size());
  int64_t largest_bytes = 0;
  for (ScheduledStream* call : calls) {
    requests.push_back(call->Request());
    largest_bytes = std::max(largest_bytes, requests.back().response_bytes);
  }
  absl::Status status;
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    std::vector<CallId> ids;
    const absl::StatusOr<BlockId> submitted = schedule.Submit(now, requests, deadline, actions, &ids);
    status = submitted.status();
    if (!submitted.ok()) return;
    block = *submitted;
    for (size_t i = 0; i < calls.size(); ++i) calls[i]->set_id(ids[i]);
  });
  if (!status.ok()) {
    for (ScheduledStream* call : calls) Forget(*call);
    return status;
  }
  last_block_calls_ = static_cast<int64_t>(calls.size());
  last_block_response_bytes_ = largest_bytes;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (requests[i].parked && !calls[i]->over()) calls[i]->worker().Wait(*calls[i]);
  }
  return absl::OkStatus();
}

absl::Status LinkLoop::Add(BlockId block, ScheduledStream& call) {
  const CallRequest request = call.Request();
  absl::Status status;
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    const absl::StatusOr<CallId> added = schedule.Add(now, block, request, actions);
    status = added.status();
    if (added.ok()) call.set_id(*added);
  });
  if (!status.ok()) {
    Forget(call);
  } else if (request.parked && !call.over()) {
    call.worker().Wait(call);
  }
  return status;
}

void LinkLoop::CancelCall(ScheduledStream& call, const absl::Status& why) {
  if (call.Abandon(why)) return;
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    schedule.CancelCall(now, call.id(), actions);
  });
}

void LinkLoop::Unsend(ScheduledStream& call) {
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    schedule.OnUnsent(now, call.id(), actions);
  });
}

void LinkLoop::Park(ScheduledStream& call) {
  Unsend(call);
  if (!call.over()) call.worker().Wait(call);
}

void LinkLoop::Unpark(ScheduledStream& call) {
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    schedule.Unpark(now, call.id(), actions);
  });
}

void LinkLoop::Ready(CallId id, int64_t remaining_bytes, int64_t withheld_bytes) {
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    schedule.OnReady(now, id, remaining_bytes, actions, withheld_bytes);
  });
}

void LinkLoop::Unwanted(CallId id) {
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    schedule.OnUnwanted(now, id, actions);
  });
}

void LinkLoop::Received(ScheduledStream& call, int64_t bytes) {
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    schedule.OnReceived(now, call.id(), bytes, actions);
  });
}

void LinkLoop::Finish(ScheduledStream& call, CallEnd end) {
  Finish(call.id(), end);
  Forget(call);
}

void LinkLoop::Forget(ScheduledStream& call) {
  const size_t position = call.position();
  ended_calls_.push_back(std::move(calls_[position]));
  if (position + 1 < calls_.size()) {
    calls_[position] = std::move(calls_.back());
    calls_[position]->set_position(position);
  }
  calls_.pop_back();
}

absl::Status LinkLoop::SubmitOther(Scheduled& other, int64_t response_bytes, TimePoint deadline, Place place,
                                   BlockId& block) {
  const bool ahead = place != Place::kQueued;
  const CallRequest request{.response_bytes = response_bytes, .tag = other.tag(), .retry = place == Place::kAheadRetry};
  absl::Status status;
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    const auto submitted = ahead ? schedule.SubmitAhead(now, request, deadline, actions)
                                 : schedule.Submit(now, {&request, 1}, deadline, actions);
    status = submitted.status();
    if (submitted.ok()) block = *submitted;
  });
  if (!status.ok() || ahead) return status;
  last_block_calls_ = 1;
  last_block_response_bytes_ = response_bytes;
  return absl::OkStatus();
}

void LinkLoop::Cancel(BlockId block) {
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    schedule.Cancel(now, block, actions);
  });
}

void LinkLoop::Finish(CallId id, CallEnd end) {
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    schedule.OnFinished(now, id, end, actions);
  });
}

void LinkLoop::Bury(std::unique_ptr<Connection> connection) {
  if (connection != nullptr) buried_.push_back(std::move(connection));
}

template <class Event>
absl::Status LinkLoop::Configure(Event event) {
  absl::Status status;
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    status = event(schedule, now, actions);
  });
  SetPatience();
  return status;
}

absl::Status LinkLoop::SetBudget(int64_t budget_bytes) {
  return Configure([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    return schedule.SetBudget(now, budget_bytes, actions);
  });
}

absl::Status LinkLoop::Reconfigure(ScheduleOptions options) {
  if (uses_tls_) options.record_overhead_bytes = std::max(options.record_overhead_bytes, kTlsOverheadBytes);
  return Configure([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    return schedule.Reconfigure(now, options, actions);
  });
}

// Use the time of stalls for the patience: the schedule also stops charging granted bytes that are later than that. A
// part of a response is up to a third of the budget, and comes within a drain time if its worker keeps up. The slowest
// such worker therefore needs three drain times for a budget.
void LinkLoop::SetPatience() {
  constexpr int kDrainTimes = 8;  // for each budget of a message
  const ScheduleOptions& options = schedule_.options();
  const int64_t budget_bytes = std::max<int64_t>(schedule_.State().plan_bytes, 1);
  const CallbackMemory::ByteTime drain_time = DrainTime(options.profile, budget_bytes);
  callback_memory_.SetPatience(
      absl::ToChronoNanoseconds(options.stall_timeout + options.profile.propagation_rtt),
      std::min<CallbackMemory::ByteTime>(kDrainTimes * drain_time / static_cast<double>(budget_bytes),
                                         std::chrono::seconds(1)));
}

absl::Status LinkLoop::SetLease(const BudgetLease& lease) {
  return Configure([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    return schedule.SetLease(now, lease, actions);
  });
}

LinkLoop::TcpSlice LinkLoop::TcpSockets(const std::optional<WorkerKey>& after, size_t workers) const {
  TcpSlice slice;
  auto next = after.has_value() ? workers_by_target_.upper_bound(*after) : workers_by_target_.begin();
  for (; next != workers_by_target_.end(); ++next) {
    if (workers-- == 0) {
      slice.last = std::prev(next)->first;
      break;
    }
    if (const auto worker = next->second.lock()) worker->AppendTcp(slice.sockets);
  }
  return slice;
}

void LinkLoop::EndTurn() {
  const TimePoint time = now();
  timers_.RunDue(time);
  if (schedule_.NextTimer() <= time) {
    Drive([](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) { schedule.OnTimer(now, actions); });
  }
  // Repeat until nothing is left: tasks, writes and destructors may cause more of each, and the next turn may be far
  // away.
  do {
    for (size_t next = 0; next < at_end_.size(); ++next) std::exchange(at_end_[next], nullptr)();
    at_end_.clear();
    FlushQueued();
    to_flush_.clear();
    next_to_flush_ = 0;
    FreeGarbage();
  } while (!at_end_.empty() || !to_flush_.empty());
  if (std::exchange(schedule_changed_, false) && demand_watcher_) demand_watcher_(schedule_.Demand(time));
  // A late timer never lets anything pass that was not due, so the next turn may also come early and find nothing.
  executor_.SetTimer(std::min(timers_.next(), schedule_.NextTimer()), [] {});
}

// Destroyed objects may release further objects.
void LinkLoop::FreeGarbage() {
  while (!ended_calls_.empty() || !buried_.empty() || !unused_workers_.empty()) {
    std::exchange(ended_calls_, {}).clear();
    std::exchange(buried_, {}).clear();
    std::exchange(unused_workers_, {}).clear();
  }
}

void LinkLoop::FlushEarly() {
  if (to_flush_.size() - next_to_flush_ >= kMinToFlushEarly) FlushQueued();
}

// A flush may queue further connections, and may call this function again.
void LinkLoop::FlushQueued() {
  while (next_to_flush_ < to_flush_.size()) {
    Flushable* const connection = to_flush_[next_to_flush_++];
    if (connection != nullptr) connection->Flush();
  }
}

void LinkLoop::FlushLater(Flushable& connection) {
  to_flush_.push_back(&connection);
}

void LinkLoop::Forget(Flushable& connection) {
  std::replace(to_flush_.begin(), to_flush_.end(), &connection, static_cast<Flushable*>(nullptr));
}

}  // namespace sluice
