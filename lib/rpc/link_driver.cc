#include "lib/rpc/link_driver.h"

#include <algorithm>
#include <chrono>

#include <boost/asio/post.hpp>

#include "absl/container/inlined_vector.h"
#include "lib/rpc/clock.h"

namespace sluice {
namespace {

ScheduledCall& CallOf(const Action& action) {
  return *reinterpret_cast<ScheduledCall*>(static_cast<uintptr_t>(action.tag));
}

// Bytes per second, by the model of the discipline.
double PredictGoodput(const LinkSchedule::Options& options, const SlotPlan& plan, int64_t response_bytes,
                      int64_t calls) {
  constexpr double kBitsPerByte = 8;
  switch (options.discipline) {
    case Discipline::kUnscheduled:
      return PredictCollapse(options.profile, response_bytes, calls).goodput_bps / kBitsPerByte;
    case Discipline::kBatches:
      return plan.goodput_bps / kBitsPerByte;
    case Discipline::kRolling:
    case Discipline::kGrants:
      return PredictClosedLoopGoodputBps(options.profile, response_bytes, calls) / kBitsPerByte;
  }
  return 0;
}

}  // namespace

LinkDriver::LinkDriver(LinkSchedule schedule, AggregatorMetrics& metrics, int completion_threads)
    : discipline_(schedule.options().discipline),
      metrics_(metrics),
      schedule_(std::move(schedule)),
      timer_(io_thread_.context()) {
  for (int i = 0; i < completion_threads; ++i) pollers_.emplace_back([this] { PollCompletions(); });
}

LinkDriver::~LinkDriver() {
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &LinkDriver::Idle));
  }
  // The timer's thread ends first, so that nothing adds work to a completion queue that has shut down.
  io_thread_.Stop();
  queue_.Shutdown();
  for (std::thread& poller : pollers_) poller.join();
}

bool LinkDriver::Idle() const {
  const ScheduleState state = schedule_.State();
  return state.submitted_calls == state.ended_calls;
}

absl::Status LinkDriver::Drive(Event event) {
  std::vector<Action> actions;
  absl::InlinedVector<std::shared_ptr<void>, 4> held;
  absl::Status status;
  bool rearm = false;
  {
    absl::MutexLock lock(&mutex_);
    status = event(schedule_, Now(), actions);
    for (const Action& action : actions) {
      if (action.kind == Action::Kind::kGrant || action.kind == Action::Kind::kAbort) {
        held.push_back(CallOf(action).Hold());
      }
    }
    rearm = WakeNoLaterThan(schedule_.NextTimer());
  }
  if (rearm) boost::asio::post(io_thread_.context(), [this] { ArmTimer(); });
  Apply(actions);
  return status;
}

absl::Status LinkDriver::Submit(absl::Span<const CallRequest> calls, TimePoint deadline, BlockId& block) {
  return Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions)
                   ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                     absl::StatusOr<BlockId> submitted = schedule.Submit(now, calls, deadline, actions);
                     if (!submitted.ok()) return submitted.status();
                     block = *submitted;
                     RememberForPlan(calls);
                     return absl::OkStatus();
                   });
}

absl::Status LinkDriver::Add(BlockId block, CallRequest call, CallId& id) {
  return Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    absl::StatusOr<CallId> added = schedule.Add(now, block, call, actions);
    if (added.ok()) id = *added;
    return added.status();
  });
}

void LinkDriver::Ready(CallId call, std::optional<int64_t> response_bytes) {
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    schedule.OnReady(now, call, response_bytes, actions);
    return absl::OkStatus();
  }).IgnoreError();
}

void LinkDriver::Progress(CallId call, int64_t remaining_bytes) {
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    schedule.OnProgress(now, call, remaining_bytes, actions);
    return absl::OkStatus();
  }).IgnoreError();
}

void LinkDriver::Finish(CallId call, CallEnd end) {
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    schedule.OnFinished(now, call, end, actions);
    return absl::OkStatus();
  }).IgnoreError();
}

void LinkDriver::Cancel(BlockId block) {
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    schedule.Cancel(now, block, actions);
    return absl::OkStatus();
  }).IgnoreError();
}

void LinkDriver::CancelCall(CallId call) {
  Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    schedule.CancelCall(now, call, actions);
    return absl::OkStatus();
  }).IgnoreError();
}

absl::Status LinkDriver::SetBudget(int64_t budget_bytes) {
  return Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    return schedule.SetBudget(now, budget_bytes, actions);
  });
}

absl::Status LinkDriver::Reconfigure(const LinkSchedule::Options& options) {
  return Drive([&](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    return schedule.Reconfigure(now, options, actions);
  });
}

LinkSchedule::Options LinkDriver::options() const {
  absl::MutexLock lock(&mutex_);
  return schedule_.options();
}

ScheduleState LinkDriver::State() const {
  absl::MutexLock lock(&mutex_);
  return schedule_.State();
}

void LinkDriver::RememberForPlan(absl::Span<const CallRequest> calls) {
  const auto smaller = [](const CallRequest& a, const CallRequest& b) { return a.response_bytes < b.response_bytes; };
  last_block_calls_ = static_cast<int64_t>(calls.size());
  last_block_response_bytes_ = std::max_element(calls.begin(), calls.end(), smaller)->response_bytes;
}

AggregatorGauges LinkDriver::Gauges() const {
  ScheduleState state;
  LinkSchedule::Options options;
  int64_t calls = 0;
  int64_t response_bytes = 0;
  {
    absl::MutexLock lock(&mutex_);
    state = schedule_.State();
    options = schedule_.options();
    calls = last_block_calls_;
    response_bytes = last_block_response_bytes_;
  }
  AggregatorGauges gauges{.queued_calls = state.waiting_calls,
                          .queued_blocks = state.blocks,
                          .in_flight_bytes = state.in_flight_bytes,
                          .in_flight_calls = state.in_flight_calls,
                          .ungranted_calls = state.ungranted_calls,
                          .grant_window = state.grant_window,
                          .budget_bytes = state.budget_bytes,
                          .link_capacity_bytes_per_second = options.profile.capacity_bytes_per_second};
  const WorkerTable::Reach reach = workers_.CountReached();
  gauges.workers_wanted = reach.wanted;
  gauges.workers_connected = reach.connected;
  if (calls == 0) return gauges;
  const SlotPlan plan = PlanSlotsAtLeastOne(options.profile, response_bytes, calls);
  gauges.plan_batch_workers = plan.batch_workers;
  gauges.plan_wnd_max_packets = plan.wnd_max_packets;
  gauges.plan_slot = plan.slot;
  gauges.plan_goodput_bytes_per_second = PredictGoodput(options, plan, response_bytes, calls);
  return gauges;
}

void LinkDriver::Apply(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    switch (action.kind) {
      case Action::Kind::kSend:
        CallOf(action).Send(action.call, discipline_ == Discipline::kGrants);
        break;
      case Action::Kind::kSendGranted:
        CallOf(action).Send(action.call, false);
        break;
      case Action::Kind::kGrant:
        CallOf(action).Grant();
        break;
      case Action::Kind::kStall:
        metrics_.CountTimeout(TimeoutKind::kStall);
        break;
      case Action::Kind::kExpire:
        CallOf(action).EndUnsent(
            absl::DeadlineExceededError("the deadline passed while the request waited; it was not sent"));
        break;
      case Action::Kind::kDrop:
        CallOf(action).EndUnsent(absl::CancelledError("cancelled while the request waited; it was not sent"));
        break;
      case Action::Kind::kAbort:
        CallOf(action).Abort();
        break;
    }
  }
}

// True when the timer has to be set anew. A timer that is too early is left alone: it fires, finds nothing, and is set
// for what is next; so the common case, later deadlines behind earlier ones, never touches the other thread.
bool LinkDriver::WakeNoLaterThan(TimePoint time) {
  if (time >= armed_for_) return false;
  armed_for_ = time;
  return true;
}

void LinkDriver::ArmTimer() {
  TimePoint time;
  {
    absl::MutexLock lock(&mutex_);
    time = armed_for_;
  }
  if (time == TimePoint::max()) return;
  timer_.expires_at(time);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) OnTimer();
  });
}

void LinkDriver::OnTimer() {
  const auto lateness = std::max(Now() - timer_.expiry(), TimePoint::duration::zero());
  metrics_.ObserveTimerLateness(absl::FromChrono(lateness));
  {
    absl::MutexLock lock(&mutex_);
    armed_for_ = TimePoint::max();
  }
  Drive([](LinkSchedule& schedule, TimePoint now, std::vector<Action>& actions) {
    schedule.OnTimer(now, actions);
    return absl::OkStatus();
  }).IgnoreError();
}

void LinkDriver::PollCompletions() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) static_cast<Completion*>(tag)->OnCompletion(ok);
}

}  // namespace sluice
