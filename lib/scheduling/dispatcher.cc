#include "lib/scheduling/dispatcher.h"

#include <algorithm>
#include <optional>

#include "sluice/plan.h"

namespace sluice {

Dispatcher::Dispatcher(LiveCalls& calls, const Admission& admission, BatchSlots& slots)
    : calls_(calls),
      blocks_(calls.blocks()),
      workers_(calls.workers()),
      budget_(calls.budget()),
      laps_(calls.laps()),
      queue_(calls.queue()),
      order_(calls.order()),
      sent_(calls.sent()),
      admission_(admission),
      slots_(slots) {}

void Dispatcher::Dispatch(TimePoint now, std::vector<Action>& actions) {
  if (admission_.granting() && sent_.MarkStragglers(now)) blocks_.SetAllChanged();
  // Repeat after a worker was found late. That makes room: its next part is smaller, and not all of its bytes count.
  int64_t late_laps = 0;
  do {
    late_laps = laps_.late_laps();
    workers_.OpenSharedRoom(now);
    if (!SendAhead(now, actions)) continue;
    // Try the responses again after each request. Early bytes move the headers of their call into the shared third,
    // which may make room, and a request may fill the worker whose response was next.
    while (DispatchNext(now, actions)) continue;
  } while (WaitsForRoom() && (late_laps != laps_.late_laps() || workers_.ShrinkLate(now)));
}

TimePoint Dispatcher::NextTimer(TimePoint now) const {
  TimePoint next = slots_.NextSlot(now);
  if (WaitsForRoom()) next = std::min({next, laps_.next_late(), budget_.pacer().opens_at()});
  // While a response is in flight the link has work, and the event that ends the response checks the stragglers, too.
  if (admission_.granting() && (queue_.empty() ? blocks_.calls(Call::Phase::kWaiting) > 0 : budget_.idle())) {
    next = std::min(next, sent_.NextStraggler());
  }
  return next;
}

bool Dispatcher::HasBacklog() const {
  return !queue_.empty() || blocks_.waiting_classes().any();
}

int64_t Dispatcher::NeedBytes() const {
  const auto first = [](const QueuedBlock* block) { return block == nullptr ? nullptr : &block->waiting.front(); };
  return admission_.NeedBytes(order_.NextReady(), first(blocks_.first_ahead()), first(order_.NextWaiting()));
}

bool Dispatcher::WaitsForRoom() const {
  return !queue_.empty() || blocks_.first_ahead() != nullptr || (!slots_.batched() && blocks_.waiting_classes().any());
}

// Returns false if a handshake needs room first. A handshake that waits for the share of all handshakes stops nothing:
// dead workers may hold that share.
bool Dispatcher::SendAhead(TimePoint now, std::vector<Action>& actions) {
  while (QueuedBlock* const block = blocks_.first_ahead()) {
    Call& call = block->waiting.front();
    if (!admission_.HandshakeHasShare(call)) return true;
    if (!admission_.HandshakeFits(call)) return false;
    Send(call, budget_.limited() ? call.expected_bytes : kMaxResponseBytes, now, actions);
  }
  return true;
}

// With grants a request costs only the room for its headers, so responses and requests do not overtake each other. In
// rolling the request of a block that comes first has its turn before the ready responses of other blocks.
bool Dispatcher::DispatchNext(TimePoint now, std::vector<Action>& actions) {
  for (const size_t traffic_class : order_.classes()) {
    if (admission_.granting() || slots_.batched()) break;
    const QueuedBlock* const waiting = order_.NextWaiting(traffic_class);
    const bool request_first = waiting != nullptr && !order_.ReadyPrecedes(*waiting);
    if (request_first && SendNext(traffic_class, now, actions)) return true;
  }
  if (GrantNext(now, actions) || GrantEarly(now, actions)) return true;
  if (admission_.NoRequestFits()) return false;
  ClassBits refused = admission_.Refused();
  for (const size_t traffic_class : order_.classes()) {
    if (refused[traffic_class]) continue;
    if (SendNext(traffic_class, now, actions)) return true;
    refused = admission_.Refused();  // a look at a worker may let calls of other classes go
  }
  return false;
}

bool Dispatcher::GrantNext(TimePoint now, std::vector<Action>& actions) {
  Call* const call = order_.NextReady();
  if (call == nullptr) return false;
  if (!workers_.LookAt(*call->worker, now)) return true;
  if (!budget_.pacer().open()) return false;
  const int64_t bytes = admission_.GrantOf(*call);
  if (!admission_.HasRoomForGrant(*call, bytes)) return false;
  calls_.Grant(*call, bytes, now);
  actions.push_back({Action::Kind::kGrant, call->id, call->tag, bytes});
  return true;
}

// Grants bytes before the prefix arrives. When the first responses of a burst are on the link, the prefixes of later
// responses follow them. A grant that waits for its prefix would leave the link without work for a round trip.
bool Dispatcher::GrantEarly(TimePoint now, std::vector<Action>& actions) {
  Call* const call = order_.NextEarly();
  if (call == nullptr) return false;
  if (!workers_.LookAt(*call->worker, now) || call->worker->share.slow()) {
    sent_.KeepFromEarly(*call);
    return true;
  }
  const std::optional<int64_t> bytes = admission_.EarlyBytes(*call);
  if (!bytes.has_value() || !budget_.pacer().open()) return false;
  calls_.GrantEarly(*call, *bytes, now);
  actions.push_back({Action::Kind::kGrant, call->id, call->tag, *bytes});
  return true;
}

bool Dispatcher::SendNext(size_t traffic_class, TimePoint now, std::vector<Action>& actions) {
  QueuedBlock* block = admission_.NextRequest(traffic_class);
  if (block == nullptr) return false;
  if (slots_.batched()) block = &slots_.NextBlock(*block);
  if (slots_.batched() && !slots_.MayLeave(*block, now)) return false;
  Call& call = block->waiting.front();
  if (!workers_.LookAt(*call.worker, now) || (admission_.granting() && !workers_.MayAsk(*call.worker))) {
    workers_.Hold(call, now);
    return true;
  }
  // The look may have let a held call go that comes first now.
  if (&call != &block->waiting.front() || (!slots_.batched() && block != order_.NextWaiting(traffic_class)))
    return true;
  const std::optional<int64_t> bytes = admission_.BytesWithRequest(call);
  if (!bytes.has_value() || (*bytes > 0 && !budget_.pacer().open())) return false;
  Send(call, *bytes, now, actions);
  return true;
}

void Dispatcher::Send(Call& call, int64_t bytes, TimePoint now, std::vector<Action>& actions) {
  QueuedBlock& block = *call.block;
  calls_.Send(call, bytes, now);
  if (slots_.batched() && !block.ahead) slots_.Left(block, call, now);
  actions.push_back({Action::Kind::kSend, call.id, call.tag, bytes});
}

}  // namespace sluice
