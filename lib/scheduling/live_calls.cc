#include "lib/scheduling/live_calls.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace sluice {

LiveCalls::LiveCalls(const LinkSchedule::Options& options)
    : granting_(options.discipline == Discipline::kGrants), outstanding_(options), window_(options) {}

void LiveCalls::SetProfile(const LinkProfile& profile) {
  outstanding_.SetProfile(profile);
  window_.SetProfile(profile);
}

CallId LiveCalls::Queue(QueuedBlock& block, const CallRequest& request, bool opens_slot, TimePoint now) {
  Call& call = calls_.Acquire();
  call.tag = request.tag;
  call.expected_bytes = std::max<int64_t>(request.response_bytes, 1);
  call.opens_slot = opens_slot;
  blocks_.Push(block, call, request.parked ? Phase::kParked : Phase::kWaiting);
  outstanding_.Update(call, now);
  ++submitted_;
  return call.id;
}

void LiveCalls::Park(Call& call, TimePoint now) {
  blocks_.Move(call, Phase::kParked);
  outstanding_.Update(call, now);
}

void LiveCalls::Unpark(Call& call, TimePoint now) {
  blocks_.Move(call, Phase::kWaiting);
  outstanding_.Update(call, now);
}

void LiveCalls::Send(Call& call, int64_t bytes, TimePoint now) {
  call.progress.sent_at = now;
  if (granting_ && bytes == 0) {
    blocks_.Move(call, Phase::kSent);
    sent_.Add(call, now);
    return;
  }
  GrantUnready(call, bytes, now);
}

void LiveCalls::GrantEarly(Call& call, int64_t bytes, TimePoint now) {
  sent_.Remove(call);
  GrantUnready(call, bytes, now);
}

void LiveCalls::GrantUnready(Call& call, int64_t bytes, TimePoint now) {
  blocks_.Move(call, Phase::kInFlight);
  queue_.Overtook(outstanding_.Cost(bytes));
  // Unscheduled has no bound; what it has in flight is what is expected.
  const int64_t granted_bytes = std::min(bytes, call.expected_bytes);
  if (granting_ && !call.block->ahead) {
    outstanding_.GrantEarly(call, granted_bytes, now);
  } else {
    outstanding_.Grant(call, granted_bytes, now);
  }
  Settle(call, now);
}

void LiveCalls::TakeReady(Call& call, int64_t remaining_bytes, TimePoint now) {
  CallProgress& progress = call.progress;
  if (!std::exchange(progress.was_ready, true) && granting_) {
    const int64_t answer_bytes = std::max<int64_t>(progress.received_bytes + remaining_bytes, 1);
    window_.Observe(now - progress.sent_at, outstanding_.Cost(answer_bytes));
  }
  progress.remaining_bytes = remaining_bytes;
  if (!budget().limited()) progress.outstanding_bytes = remaining_bytes;
  if (call.phase == Phase::kSent) {
    sent_.Remove(call);
    blocks_.Move(call, Phase::kReady);
  }
  if (call.phase == Phase::kReady && call.rest() == 0) blocks_.Move(call, Phase::kInFlight);
  if (call.turn == Call::Turn::kNone && call.rest() > 0 && !progress.stalled) queue_.AddNew(call, now);
  Settle(call, now);
}

void LiveCalls::Receive(Call& call, int64_t bytes, TimePoint now) {
  outstanding_.Receive(call, bytes, now);
  Settle(call, now);
}

void LiveCalls::Grant(Call& call, int64_t bytes, TimePoint now) {
  queue_.Take(call, outstanding_.CostOfGrant(call, bytes));
  if (call.phase == Phase::kReady) blocks_.Move(call, Phase::kInFlight);
  outstanding_.Grant(call, bytes, now);
  Settle(call, now);
}

// A call that has stalled waits for what was granted to it before it is granted more.
Call* LiveCalls::TakeStalled(TimePoint now) {
  Call* const call = outstanding_.TakeStalled(now);
  if (call != nullptr) queue_.Remove(*call);
  return call;
}

// What follows from the state of a call that is out: its charge, its turn, and whether anything is known to come.
void LiveCalls::Settle(Call& call, TimePoint now) {
  const CallProgress& progress = call.progress;
  outstanding_.Update(call, now);
  if (call.rest() == 0 || progress.aborted) {
    queue_.Remove(call);
  } else if (call.turn == Call::Turn::kNone && !progress.stalled && budget().limited()) {
    queue_.AddRest(call, now);
  }
  const bool nothing_comes = progress.remaining_bytes == 0 && call.rest() == 0;
  const bool answers = call.phase == Phase::kInFlight && !progress.aborted && !call.block->ahead;
  sent_.SetSilent(call, granting_ && answers && nothing_comes);
}

void LiveCalls::Abort(Call& call, TimePoint now) {
  call.progress.aborted = true;
  LeaveCounts(call, CallEnd::kAborted);
  if (call.phase != Phase::kInFlight) blocks_.Move(call, Phase::kInFlight);
  Settle(call, now);
}

void LiveCalls::Unsend(Call& call, TimePoint now) {
  LeaveCounts(call, CallEnd::kArrived);
  outstanding_.Release(call, CallEnd::kArrived, now);
  call.progress = {.aborted = call.progress.aborted};
  blocks_.Move(call, call.progress.aborted ? Phase::kInFlight : Phase::kParked);
}

void LiveCalls::EndUnsent(Call& call, TimePoint now) {
  outstanding_.Release(call, CallEnd::kArrived, now);
  End(call);
}

void LiveCalls::Finish(Call& call, CallEnd end, TimePoint now) {
  LeaveCounts(call, end);
  outstanding_.Update(call, now);
  outstanding_.Release(call, end, now);
  End(call);
}

// The headers of an aborted request may still come, and the room that was kept for them is gone, so they are charged.
// Those of stragglers are not: a thousand that are cancelled at once would stop the link for a drain time, for headers
// that hardly one of them sends just then.
void LiveCalls::LeaveCounts(Call& call, CallEnd end) {
  queue_.Remove(call);
  sent_.SetSilent(call, false);
  if (call.phase != Phase::kSent) return;
  if (end == CallEnd::kAborted && !call.progress.straggles) call.header_bytes = window_.HeaderBytes(1);
  sent_.Remove(call);
}

void LiveCalls::End(Call& call) {
  blocks_.Take(call);
  calls_.Release(call);
  ++ended_;
}

void LiveCalls::Check() const {
  [[maybe_unused]] const int64_t out =
      blocks_.calls(Phase::kSent) + blocks_.calls(Phase::kReady) + blocks_.calls(Phase::kInFlight);
  assert(submitted_ == waiting() + out + ended_);
  assert(sent_.size() == blocks_.calls(Phase::kSent) && sent_.stragglers() <= sent_.size());
  assert(sent_.silent() >= 0 && sent_.silent() <= blocks_.calls(Phase::kInFlight));
  assert(budget().early_bytes() >= 0 && budget().early_bytes() <= budget().in_flight_bytes());
  assert(out > 0 || budget().next_drain() < TimePoint::max() || budget().in_flight_bytes() == 0);
  assert(out > 0 || (queue_.empty() && budget().early_bytes() == 0));
  assert((blocks_.size() == 0) == (waiting() + out == 0));
  assert(outstanding_.asked_bytes() >= 0 && (blocks_.size() > 0 || outstanding_.asked_bytes() == 0));
}

}  // namespace sluice
