#include "lib/scheduling/service_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/time/time.h"
#include "lib/scheduling/saturating_add.h"

namespace sluice {
namespace {

// A block takes this many times as long as its bytes: acknowledgements, late grants, and bytes of others that have
// begun take time, too. If a block ends slightly late, it has taken the time of another block for nothing.
constexpr double kOverhead = 1.125;

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
                           GrantQueue& queue, SentCalls& sent, const Budget& budget)
    : options_(options),
      blocks_(blocks),
      workers_(workers),
      queue_(queue),
      sent_(sent),
      budget_(budget),
      classes_(options.class_count()),
      turns_(options.class_count()) {
  std::iota(turns_.begin(), turns_.end(), size_t{0});
}

void ServiceOrder::Rank(Call& call) const {
  call.rank = may_rank() && options_.shortest_first ? BlockOrder::RankOf(call.rest()) : 0;
}

int ServiceOrder::RankOf(const QueuedBlock& block) const {
  const bool ranked = may_rank() && options_.shortest_first && !block.ahead;
  return ranked ? BlockOrder::RankOf(block.remaining_bytes) : 0;
}

// If the whole link is at its service. It stays late, unless its calls are cancelled: time passes at least as fast as
// its bytes can come.
TimePoint ServiceOrder::LateAfter(const QueuedBlock& block) const {
  const bool never = !may_rank() || block.ahead || block.deadline == TimePoint::max() || block.remaining_bytes == 0;
  if (never) return TimePoint::max();
  const double seconds = static_cast<double>(block.remaining_bytes) / options_.profile.capacity_bytes_per_second;
  const absl::Duration time = options_.profile.propagation_rtt + absl::Seconds(seconds * kOverhead);
  return SaturatingSubtract(block.deadline, absl::ToChronoNanoseconds(time));
}

void ServiceOrder::MoveLate(TimePoint now) {
  while (QueuedBlock* const block = blocks_.first_late(now)) Update(*block, now);
}

// The sets that follow this order must not contain the calls of a block while its rank changes. The rank changes each
// time that half of the block has come, so this takes a constant number of steps a call.
void ServiceOrder::Update(QueuedBlock& block, TimePoint now) {
  const bool late = blocks_.SetLateAfter(block, LateAfter(block), now);
  const int rank = late ? BlockOrder::kLate : RankOf(block);
  if (rank == block.rank) return blocks_.SetRank(block, rank);
  if (late) ++late_blocks_;
  for (Call& call : block.held) {
    ClassCalls& calls = call.worker->Of(call);
    calls.held.erase(calls.held.iterator_to(call));
  }
  ForEachTurn(block, [this](Call& call) { queue_.Detach(call); });
  blocks_.SetRank(block, rank);
  for (Call& call : block.held) call.worker->Of(call).held.insert(call);
  ForEachTurn(block, [this](Call& call) { queue_.Attach(call); });
  workers_.LetGoAgain(block, now);
}

void ServiceOrder::OnGranted(const Call& call, int64_t cost_bytes) {
  if (call.block->ahead) return;
  CountOvertaken(call, cost_bytes);
  Charge(call.block->traffic_class, cost_bytes);
}

void ServiceOrder::OnGrantedOutOfTurn(const Call& call, int64_t cost_bytes) {
  CountOvertaken(call, cost_bytes);
  AddToLead(call.block->traffic_class, cost_bytes);
}

void ServiceOrder::OnUnused(const Call& call, int64_t cost_bytes) {
  AddToLead(call.block->traffic_class, -cost_bytes);
}

void ServiceOrder::AddToLead(size_t traffic_class, int64_t cost_bytes) {
  if (classes_.size() == 1) return;
  classes_[traffic_class].lead += static_cast<double>(cost_bytes) / WeightOf(traffic_class);
  SortTurns();
}

void ServiceOrder::CountOvertaken(const Call& call, int64_t cost_bytes) {
  const size_t traffic_class = call.block->traffic_class;
  const Call* const ready = queue_.oldest(traffic_class);
  const QueuedBlock* const waiting = blocks_.oldest_waiting(traffic_class);
  const bool overtakes = (ready != nullptr && ready != &call && ready->block->age() <= call.block->age()) ||
                         (waiting != nullptr && waiting->age() < call.block->age());
  int64_t& overtook_bytes = classes_[traffic_class].overtook_bytes;
  overtook_bytes = overtakes ? overtook_bytes + cost_bytes : 0;
}

// Bytes out of turn, for a response that was held for too long or is unwanted, are not charged: nothing bounds them,
// and the class would then wait for its next turn without a bound.
void ServiceOrder::Charge(size_t traffic_class, int64_t cost_bytes) {
  if (classes_.size() == 1 || !HasTurn(traffic_class)) return;
  const double began = classes_[traffic_class].lead;
  for (ServiceClass& other : classes_) other.lead = std::max(other.lead - began, 0.0);
  classes_[traffic_class].lead = static_cast<double>(cost_bytes) / WeightOf(traffic_class);
  SortTurns();
}

void ServiceOrder::SortTurns() {
  std::sort(turns_.begin(), turns_.end(),
            [this](size_t a, size_t b) { return std::pair(classes_[a].lead, a) < std::pair(classes_[b].lead, b); });
}

// With grants, a request without early bytes costs nothing, and takes no turn.
bool ServiceOrder::UsesTurn(size_t traffic_class) const {
  return queue_.first(traffic_class) != nullptr || (!granting() && blocks_.first_waiting(traffic_class) != nullptr);
}

bool ServiceOrder::HasTurn(size_t traffic_class) const {
  for (const size_t other : turns_) {
    if (other == traffic_class) break;
    if (UsesTurn(other)) return false;
  }
  return true;
}

Call* ServiceOrder::FirstReady(size_t traffic_class) const {
  return OldestIsDue(traffic_class) ? queue_.oldest(traffic_class) : queue_.first(traffic_class);
}

Call* ServiceOrder::NextReady(TimePoint now) {
  if (queue_.empty()) return nullptr;
  if (Call* const call = queue_.HeldTooLong(now)) return call;
  bool request_has_turn = false;
  for (const size_t traffic_class : turns_) {
    if (queue_.first(traffic_class) != nullptr) return request_has_turn ? nullptr : FirstReady(traffic_class);
    request_has_turn = request_has_turn || UsesTurn(traffic_class);
  }
  return queue_.first_unwanted();
}

Call* ServiceOrder::NextEarly() {
  for (const size_t traffic_class : turns_) {
    if (Call* const call = sent_.first_early(traffic_class)) return call;
  }
  return nullptr;
}

QueuedBlock* ServiceOrder::NextWaiting(size_t traffic_class) {
  if (!granting() && !HasTurn(traffic_class)) return nullptr;
  return OldestIsDue(traffic_class) ? blocks_.oldest_waiting(traffic_class) : blocks_.first_waiting(traffic_class);
}

QueuedBlock* ServiceOrder::NextWaiting() {
  for (const size_t traffic_class : turns_) {
    if (QueuedBlock* const block = NextWaiting(traffic_class)) return block;
  }
  return nullptr;
}

bool ServiceOrder::ReadyPrecedes(const QueuedBlock& block) const {
  const size_t traffic_class = block.traffic_class;
  for (const size_t other : turns_) {
    if (other == traffic_class) break;
    if (queue_.first(other) != nullptr) return true;
  }
  const Call* const ready = FirstReady(traffic_class);
  if (ready == nullptr) return false;
  return OldestIsDue(traffic_class) ? ready->block->age() <= block.age() : !(block.order() < ready->block->order());
}

double ServiceOrder::ShareOf(size_t traffic_class) const {
  if (classes_.size() == 1) return 1;
  double sum = 0;
  for (size_t other = 0; other < classes_.size(); ++other) sum += WeightOf(other);
  return WeightOf(traffic_class) / sum;
}

}  // namespace sluice
