#include "lib/link/queue_timeout.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/link/link_loop.h"
#include "lib/link/link_metrics.h"
#include "lib/link/worker.h"
#include "lib/scheduling/limit_status.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {

void QueueTimeout::Enter(ScheduledStream& call) {
  if (call.QueueHook::is_linked()) return;
  call.queued_at = loop_.now();
  call.queued_bytes.Count(loop_.schedule_run().queued_bytes(), call.worker().schedule_id(), call.request_bytes);
  calls_.push_back(call);
  SetTimer();
}

void QueueTimeout::OnOptionsChanged() {
  loop_.timers().Clear(timer_);
  SetTimer();
}

TimePoint QueueTimeout::DueOf(const ScheduledStream& call) const {
  return SaturatingAdd(call.queued_at, absl::ToChronoNanoseconds(loop_.schedule().options().queue_timeout));
}

void QueueTimeout::SetTimer() {
  if (timer_ != TimerQueue::Id() || calls_.empty()) return;
  const TimePoint due = DueOf(calls_.front());
  if (due == TimePoint::max()) return;
  timer_ = loop_.timers().Set(due, [this] {
    timer_ = TimerQueue::Id();
    EndLate();
  });
}

// The user of a call that ends may queue others.
void QueueTimeout::EndLate() {
  const TimePoint now = loop_.now();
  while (!calls_.empty() && DueOf(calls_.front()) <= now) {
    ScheduledStream& call = calls_.front();
    call.QueueHook::unlink();
    const absl::Status why = WhyLate(call);
    if (!absl::IsUnavailable(why)) call.expired = true;
    loop_.Refuse(call, QueueRefusal::kTimeout, why);
  }
  SetTimer();
}

// Unavailable if the worker is to blame: a replica, or another address, may take the call. If the link is to blame, a
// retry would only join the end of the same queue.
absl::Status QueueTimeout::WhyLate(const ScheduledStream& call) const {
  const std::string& target = call.worker().target();
  const auto waited_for = [this](absl::string_view what) {
    return absl::StrCat("the request was not sent within queue_timeout, ",
                        absl::FormatDuration(loop_.schedule().options().queue_timeout), "; it waited for ", what);
  };
  if (call.WaitHook::is_linked()) {
    const absl::string_view what = call.worker().connected() ? "a free stream to " : "a connection to ";
    return absl::UnavailableError(waited_for(absl::StrCat(what, target)));
  }
  if (call.waits_for_room) return AtLimit("schedule.queue_timeout", waited_for("room in callback_memory_bytes"));
  if (loop_.schedule().Load(call.worker().schedule_id()).slow) {
    return absl::UnavailableError(waited_for(absl::StrCat(target, ", which is slow")));
  }
  return AtLimit("schedule.queue_timeout", waited_for("the link"));
}

}  // namespace sluice
