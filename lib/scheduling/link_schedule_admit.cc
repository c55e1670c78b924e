// Admission: which calls LinkSchedule sends and grants at the end of each event, and in which order.
#include <optional>

#include "sluice/plan.h"

#include "lib/scheduling/link_schedule.h"

namespace sluice {

// Handshakes come first, then responses, because the link waits for them, then requests. Each group keeps its order: a
// smaller call further back would fit more often, and starve the large call in front. A call whose worker is full keeps
// its place and is passed over, because it waits for its worker and not for the link.
void LinkSchedule::Admit(std::vector<Action>& actions) {
  if (granting_) calls_.sent().MarkStragglers(now_, calls_.window().StraggleAfter());
  // Repeat after a worker was found late. That makes room: its next part is smaller, and not all of its bytes count.
  int64_t late_laps = 0;
  do {
    late_laps = calls_.laps().late_laps();
    if (!SendAhead(actions)) continue;
    // Try the responses again after each request. Early bytes move the headers of their call into the shared third,
    // which may make room, and a request may fill the worker whose response was next.
    while (GrantNext(actions) || GrantEarly(actions) || SendNext(actions)) continue;
  } while (WaitsForRoom() && (late_laps != calls_.laps().late_laps() || calls_.workers().ShrinkLate(now_)));
  CountBacklog();
  calls_.Check();
}

// Counts the bytes of this event in the state before it: they were on the link then.
void LinkSchedule::CountBacklog() {
  const int64_t received_bytes = calls_.laps().received_bytes();
  if (backlogged_) {
    backlogged_time_ += now_ - counted_until_;
    backlogged_bytes_ += received_bytes - counted_bytes_;
  }
  counted_until_ = now_;
  counted_bytes_ = received_bytes;
  backlogged_ = !calls_.queue().empty() || calls_.blocks().first_waiting() != nullptr;
}

bool LinkSchedule::WaitsForRoom() const {
  const BlockQueue& blocks = calls_.blocks();
  return !calls_.queue().empty() || blocks.first_ahead() != nullptr || (!batched_ && blocks.first_waiting() != nullptr);
}

// Returns false if a handshake needs room first. A handshake that waits for the share of all handshakes stops nothing:
// dead workers may hold that share.
bool LinkSchedule::SendAhead(std::vector<Action>& actions) {
  while (QueuedBlock* const block = calls_.blocks().first_ahead()) {
    Call& call = block->waiting.front();
    if (!admission_.HandshakeHasShare(call)) return true;
    if (!admission_.HandshakeFits(call)) return false;
    Send(call, calls_.budget().limited() ? call.expected_bytes : kMaxResponseBytes, actions);
  }
  return true;
}

bool LinkSchedule::SendNext(std::vector<Action>& actions) {
  QueuedBlock* block = calls_.blocks().first_waiting();
  if (block == nullptr) return false;
  if (batched_) block = &slots_.NextBlock(*block);
  if (batched_ && !slots_.MayLeave(*block, now_)) return false;
  Call& call = block->waiting.front();
  if (!calls_.workers().LookAt(*call.worker, now_)) {
    calls_.workers().Hold(call, now_);
    return true;
  }
  if (&call != &block->waiting.front() || (!batched_ && block != calls_.blocks().first_waiting())) return true;
  const std::optional<int64_t> bytes = admission_.BytesWithRequest(call);
  if (!bytes.has_value()) return false;
  Send(call, *bytes, actions);
  return true;
}

void LinkSchedule::Send(Call& call, int64_t bytes, std::vector<Action>& actions) {
  QueuedBlock& block = *call.block;
  calls_.Send(call, bytes, now_);
  if (batched_ && !block.ahead) slots_.Left(block, call, now_);
  actions.push_back({Action::Kind::kSend, call.id, call.tag, bytes});
}

bool LinkSchedule::GrantNext(std::vector<Action>& actions) {
  Call* const call = calls_.queue().Next(now_, calls_.budget().bytes());
  if (call == nullptr) return false;
  if (!calls_.workers().LookAt(*call->worker, now_)) return true;
  const int64_t bytes = admission_.PartOf(call->rest(), *call->worker);
  if (!admission_.HasRoomForGrant(*call, bytes)) return false;
  calls_.Grant(*call, bytes, now_);
  actions.push_back({Action::Kind::kGrant, call->id, call->tag, bytes});
  return true;
}

// Grants bytes before the prefix arrives. When the first responses of a burst are on the link, the prefixes of later
// responses follow them. A grant that waits for its prefix would leave the link without work for a round trip.
bool LinkSchedule::GrantEarly(std::vector<Action>& actions) {
  Call* const call = calls_.sent().first_early();
  if (call == nullptr) return false;
  if (!calls_.workers().LookAt(*call->worker, now_) || call->worker->share.slow()) {
    calls_.sent().KeepFromEarly(*call);
    return true;
  }
  const std::optional<int64_t> bytes = admission_.EarlyBytes(*call);
  if (!bytes.has_value()) return false;
  calls_.GrantEarly(*call, *bytes, now_);
  actions.push_back({Action::Kind::kGrant, call->id, call->tag, *bytes});
  return true;
}

}  // namespace sluice
