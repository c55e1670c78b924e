#include "lib/scheduling/service_order.h"

namespace sluice {
namespace {

template <class Event>
void ForEachTurn(QueuedBlock& block, Event event) {
  for (CallList* calls : {&block.ready, &block.in_flight}) {
    for (Call& call : *calls) {
      if (call.turn != Call::Turn::kNone) event(call);
    }
  }
}

}  // namespace

ServiceOrder::ServiceOrder(const ScheduleOptions& options, BlockQueue& blocks, QueuedWorkers& workers,
                           GrantQueue& queue, const Budget& budget)
    : options_(options),
      may_rank_(options.policy == SchedulePolicy::kGrants || options.policy == SchedulePolicy::kRolling),
      blocks_(blocks),
      workers_(workers),
      queue_(queue),
      budget_(budget) {}

void ServiceOrder::Rank(Call& call) const {
  call.rank = may_rank_ && options_.shortest_first ? BlockOrder::RankOf(call.rest()) : 0;
}

// The sets that follow this order must not contain the calls of a block while its rank changes. The rank changes each
// time that half of the block has come, so this takes a constant number of steps a call.
void ServiceOrder::Update(QueuedBlock& block, TimePoint now) {
  const bool ranked = may_rank_ && options_.shortest_first && !block.ahead;
  const int rank = ranked ? BlockOrder::RankOf(block.remaining_bytes) : 0;
  if (rank == block.rank) return blocks_.SetRank(block, rank);
  for (Call& call : block.held) call.worker->held.erase(call.worker->held.iterator_to(call));
  ForEachTurn(block, [this](Call& call) { queue_.Detach(call); });
  blocks_.SetRank(block, rank);
  for (Call& call : block.held) call.worker->held.insert(call);
  ForEachTurn(block, [this](Call& call) { queue_.Attach(call); });
  workers_.LetGoAgain(block, now);
}

void ServiceOrder::OnGranted(const Call& call, int64_t cost_bytes) {
  if (call.block->ahead) return;
  const Call* const ready = queue_.oldest();
  const QueuedBlock* const waiting = blocks_.oldest_waiting();
  const bool overtakes = (ready != nullptr && ready != &call && ready->block->id <= call.block->id) ||
                         (waiting != nullptr && waiting->id < call.block->id);
  overtook_bytes_ = overtakes ? overtook_bytes_ + cost_bytes : 0;
}

bool ServiceOrder::ReadyPrecedes(const QueuedBlock& block) const {
  const Call* const ready = oldest_is_due() ? queue_.oldest() : queue_.first();
  if (ready == nullptr) return false;
  return oldest_is_due() ? ready->block->id <= block.id : !(block.order() < ready->block->order());
}

}  // namespace sluice
