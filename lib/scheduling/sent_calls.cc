#include "lib/scheduling/sent_calls.h"

#include "lib/scheduling/block_queue.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {

void SentCalls::Add(Call& call, TimePoint now) {
  call.progress.sent_at = now;
  call.progress.straggles = false;
  young_.push_back(call);
  ++young_calls_[call.block->traffic_class];
  early_[call.block->traffic_class].push_back(call);
  ++size_;
}

void SentCalls::Remove(Call& call) {
  if (call.progress.straggles) {
    --stragglers_;
  } else {
    young_.erase(young_.iterator_to(call));
    --young_calls_[call.block->traffic_class];
    KeepFromEarly(call);
  }
  --size_;
}

void SentCalls::MarkStragglers(TimePoint now, std::chrono::nanoseconds straggle_after) {
  while (!young_.empty() && NextStraggler(straggle_after) <= now) {
    Call& call = young_.front();
    call.progress.straggles = true;
    KeepFromEarly(call);
    young_.pop_front();
    --young_calls_[call.block->traffic_class];
    ++stragglers_;
  }
}

void SentCalls::KeepFromEarly(Call& call) {
  if (!call.EarlyHook::is_linked()) return;
  EarlyCalls& early = early_[call.block->traffic_class];
  early.erase(early.iterator_to(call));
}

void SentCalls::SetSilent(Call& call, bool silent) {
  silent_ += static_cast<int64_t>(silent) - static_cast<int64_t>(call.progress.silent);
  call.progress.silent = silent;
}

TimePoint SentCalls::NextStraggler(std::chrono::nanoseconds straggle_after) const {
  return young_.empty() ? TimePoint::max() : SaturatingAdd(young_.front().progress.sent_at, straggle_after);
}

}  // namespace sluice
