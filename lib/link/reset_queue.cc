#include "lib/link/reset_queue.h"

#include <algorithm>

#include "lib/link/link_loop.h"

namespace sluice {
namespace {

constexpr std::chrono::seconds kLate(1);
constexpr std::chrono::milliseconds kLookEvery(200);

}  // namespace

ResetQueue::~ResetQueue() {
  loop_.timers().Clear(timer_);
}

void ResetQueue::Wait(ScheduledStream& call, size_t& counter) {
  if (call.WaitHook::is_linked()) return;
  if (waiting_.empty()) SetTimer();
  waiting_.push_back(call);
  call.CountIn(counter);
}

void ResetQueue::SetTimer() {
  loop_.timers().Clear(timer_);
  timer_ = loop_.timers().Set(std::min(allowance_.Next(), loop_.now() + kLookEvery), [this] { Reset(); });
}

void ResetQueue::Reset() {
  timer_ = TimerQueue::Id();
  while (!waiting_.empty() && allowance_.Take(loop_.now())) {
    ScheduledStream& call = waiting_.front();
    call.ResetNow();  // it leaves the list
  }
  if (allowance_.Next(waiting_.size()) - loop_.now() > kLate) on_late_();
  if (!waiting_.empty()) SetTimer();
}

}  // namespace sluice
