#include "lib/scheduling/dispatcher.h"

#include <algorithm>
#include <optional>

#include "sluice/plan.h"

namespace sluice {

Dispatcher::Dispatcher(const ScheduleOptions& options, LiveCalls& calls, const Admission& admission, BatchSlots& slots)
    : batched_(options.policy == SchedulePolicy::kBatches),
      granting_(options.policy == SchedulePolicy::kGrants),
      calls_(calls),
      admission_(admission),
      slots_(slots) {}

void Dispatcher::Dispatch(TimePoint now, std::vector<Action>& actions) {
  if (granting_) calls_.sent().MarkStragglers(now, calls_.window().StraggleAfter());
  // Repeat after a worker was found late. That makes room: its next part is smaller, and not all of its bytes count.
  int64_t late_laps = 0;
  do {
    late_laps = calls_.laps().late_laps();
    if (!SendAhead(now, actions)) continue;
    // Try the responses again after each request. Early bytes move the headers of their call into the shared third,
    // which may make room, and a request may fill the worker whose response was next.
    while (GrantNext(now, actions) || GrantEarly(now, actions) || SendNext(now, actions)) continue;
  } while (WaitsForRoom() && (late_laps != calls_.laps().late_laps() || calls_.workers().ShrinkLate(now)));
}

TimePoint Dispatcher::NextTimer(TimePoint now) const {
  TimePoint next = slots_.NextSlot(now);
  if (WaitsForRoom()) next = std::min(next, calls_.laps().next_late());
  // While a response is in flight the link has work, and the event that ends the response checks the stragglers, too.
  if (granting_ &&
      (calls_.queue().empty() ? calls_.blocks().calls(Call::Phase::kWaiting) > 0 : calls_.budget().idle())) {
    next = std::min(next, calls_.sent().NextStraggler(calls_.window().StraggleAfter()));
  }
  return next;
}

bool Dispatcher::HasBacklog() const {
  return !calls_.queue().empty() || calls_.blocks().first_waiting() != nullptr;
}

int64_t Dispatcher::NeedBytes(TimePoint now) const {
  const auto first = [](const QueuedBlock* block) { return block == nullptr ? nullptr : &block->waiting.front(); };
  return admission_.NeedBytes(calls_.queue().Next(now, calls_.budget().bytes()), first(calls_.blocks().first_ahead()),
                              first(calls_.blocks().first_waiting()));
}

bool Dispatcher::WaitsForRoom() const {
  const BlockQueue& blocks = calls_.blocks();
  return !calls_.queue().empty() || blocks.first_ahead() != nullptr || (!batched_ && blocks.first_waiting() != nullptr);
}

// Returns false if a handshake needs room first. A handshake that waits for the share of all handshakes stops nothing:
// dead workers may hold that share.
bool Dispatcher::SendAhead(TimePoint now, std::vector<Action>& actions) {
  while (QueuedBlock* const block = calls_.blocks().first_ahead()) {
    Call& call = block->waiting.front();
    if (!admission_.HandshakeHasShare(call)) return true;
    if (!admission_.HandshakeFits(call)) return false;
    Send(call, calls_.budget().limited() ? call.expected_bytes : kMaxResponseBytes, now, actions);
  }
  return true;
}

bool Dispatcher::GrantNext(TimePoint now, std::vector<Action>& actions) {
  Call* const call = calls_.queue().Next(now, calls_.budget().bytes());
  if (call == nullptr) return false;
  if (!calls_.workers().LookAt(*call->worker, now)) return true;
  const int64_t bytes = admission_.PartOf(call->rest(), *call->worker);
  if (!admission_.HasRoomForGrant(*call, bytes)) return false;
  calls_.Grant(*call, bytes, now);
  actions.push_back({Action::Kind::kGrant, call->id, call->tag, bytes});
  return true;
}

// Grants bytes before the prefix arrives. When the first responses of a burst are on the link, the prefixes of later
// responses follow them. A grant that waits for its prefix would leave the link without work for a round trip.
bool Dispatcher::GrantEarly(TimePoint now, std::vector<Action>& actions) {
  Call* const call = calls_.sent().first_early();
  if (call == nullptr) return false;
  if (!calls_.workers().LookAt(*call->worker, now) || call->worker->share.slow()) {
    calls_.sent().KeepFromEarly(*call);
    return true;
  }
  const std::optional<int64_t> bytes = admission_.EarlyBytes(*call);
  if (!bytes.has_value()) return false;
  calls_.GrantEarly(*call, *bytes, now);
  actions.push_back({Action::Kind::kGrant, call->id, call->tag, *bytes});
  return true;
}

bool Dispatcher::SendNext(TimePoint now, std::vector<Action>& actions) {
  QueuedBlock* block = calls_.blocks().first_waiting();
  if (block == nullptr) return false;
  if (batched_) block = &slots_.NextBlock(*block);
  if (batched_ && !slots_.MayLeave(*block, now)) return false;
  Call& call = block->waiting.front();
  if (!calls_.workers().LookAt(*call.worker, now)) {
    calls_.workers().Hold(call, now);
    return true;
  }
  // The look may have let a held call go that comes first now.
  if (&call != &block->waiting.front() || (!batched_ && block != calls_.blocks().first_waiting())) return true;
  const std::optional<int64_t> bytes = admission_.BytesWithRequest(call);
  if (!bytes.has_value()) return false;
  Send(call, *bytes, now, actions);
  return true;
}

void Dispatcher::Send(Call& call, int64_t bytes, TimePoint now, std::vector<Action>& actions) {
  QueuedBlock& block = *call.block;
  calls_.Send(call, bytes, now);
  if (batched_ && !block.ahead) slots_.Left(block, call, now);
  actions.push_back({Action::Kind::kSend, call.id, call.tag, bytes});
}

}  // namespace sluice
