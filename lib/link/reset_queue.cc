#include "lib/link/reset_queue.h"

#include "lib/link/link_loop.h"

namespace sluice {

ResetQueue::~ResetQueue() {
  loop_.timers().Clear(timer_);
}

void ResetQueue::Wait(ScheduledStream& call) {
  if (call.WaitHook::is_linked()) return;
  if (waiting_.empty()) {
    loop_.timers().Clear(timer_);
    SetTimer();
  }
  waiting_.push_back(call);
}

void ResetQueue::SetTimer() {
  timer_ = loop_.timers().Set(allowance_.Next(), [this] { Reset(); });
}

void ResetQueue::Reset() {
  timer_ = TimerQueue::Id();
  while (!waiting_.empty() && allowance_.Take(loop_.now())) {
    ScheduledStream& call = waiting_.front();
    waiting_.pop_front();
    call.ResetNow();
  }
  if (!waiting_.empty()) SetTimer();
}

}  // namespace sluice
