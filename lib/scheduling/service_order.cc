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
  OnWeightsChanged();
}

void ServiceOrder::Rank(Call& call) const {
  call.rank = may_rank() && options_.shortest_first ? BlockOrder::RankOf(call.rest()) : 0;
}

int ServiceOrder::RankOf(const QueuedBlock& block) const {
  if (!may_rank() || !options_.shortest_first || block.ahead) return 0;
  if (block.unsized_calls == 0) return BlockOrder::RankOf(block.known_bytes);
  // Blocks of unknown sizes change places at powers of 16. With powers of two, equal blocks would end at about the same
  // time.
  constexpr int kCoarse = 4;
  return BlockOrder::RankOf(block.claimed_bytes) / kCoarse * kCoarse;
}

// Rolling and batches send a request with its response, so both have one order. With grants a block is stocked if it
// has a budget ready at workers, and as many calls out without a grant as there is room for headers. With the bytes
// alone, a block of small responses would ask in bursts, with pauses as long as its workers think.
int ServiceOrder::RequestRankOf(const QueuedBlock& block, int rank) const {
  if (!granting() || block.ahead) return rank;
  const bool has_ready = block.ready_bytes >= budget_.plan_bytes();
  if (has_ready && block.ungranted_calls * sent_.usual_header_bytes() >= budget_.plan_bytes() / 3) {
    return BlockOrder::kStocked;
  }
  return HeldRankOf(block, rank) + (block.small(budget_.plan_bytes()) ? 0 : BlockOrder::kNotSmall);
}

int ServiceOrder::HeldRankOf(const QueuedBlock& block, int rank) const {
  if (!granting() || block.ahead) return rank;
  return options_.shortest_first ? BlockOrder::RankOfRequests(block.sent_requests) : 0;
}

// If the whole link is at its service. It stays late, unless its calls are cancelled: time passes at least as fast as
// its bytes can come.
TimePoint ServiceOrder::LateAfter(const QueuedBlock& block) const {
  const bool never = !may_rank() || block.ahead || block.deadline == TimePoint::max() || block.known_bytes == 0;
  if (never) return TimePoint::max();
  const double seconds = static_cast<double>(block.known_bytes) / options_.profile.capacity_bytes_per_second;
  const absl::Duration time = options_.profile.propagation_rtt + absl::Seconds(seconds * kOverhead);
  return SaturatingSubtract(block.deadline, absl::ToChronoNanoseconds(time));
}

void ServiceOrder::MoveLate(TimePoint now) {
  while (QueuedBlock* const block = blocks_.first_late(now)) Update(*block, now);
}

// The sets that follow this order must not contain the calls of a block while its ranks change. They change each time
// that half of the block has come, or that its bytes or requests have doubled. So this takes a constant number of steps
// a call.
void ServiceOrder::Update(QueuedBlock& block, TimePoint now) {
  const bool late = blocks_.SetLateAfter(block, LateAfter(block), now);
  const int rank = late ? BlockOrder::kLate : RankOf(block);
  blocks_.SetRequestRank(block, RequestRankOf(block, rank));
  const int held_rank = HeldRankOf(block, rank);
  if (rank == block.rank && held_rank == block.held_rank) return blocks_.CountRemaining(block);
  if (late && rank != block.rank) ++late_blocks_;
  for (Call& call : block.held) {
    ClassCalls& calls = call.worker->Of(call);
    calls.held.erase(calls.held.iterator_to(call));
  }
  const bool moves = rank != block.rank;
  if (moves) ForEachTurn(block, [this](Call& call) { queue_.Detach(call); });
  block.rank = rank;
  block.held_rank = held_rank;
  blocks_.CountRemaining(block);
  for (Call& call : block.held) call.worker->Of(call).held.insert(call);
  if (moves) ForEachTurn(block, [this](Call& call) { queue_.Attach(call); });
  workers_.LetGoAgain(block, now);
}

void ServiceOrder::OnSent(const Call& call) {
  if (!granting() || call.block->ahead) return;
  const size_t traffic_class = call.block->traffic_class;
  int64_t& overtook_requests = classes_[traffic_class].overtook_requests;
  overtook_requests = blocks_.oldest_waiting(traffic_class) == call.block ? 0 : overtook_requests + 1;
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
  const QueuedBlock* const waiting = granting() ? nullptr : blocks_.oldest_waiting(traffic_class);
  const bool overtakes = (ready != nullptr && ready != &call && ready->block->id <= call.block->id) ||
                         (waiting != nullptr && waiting->id < call.block->id);
  int64_t& overtook_bytes = classes_[traffic_class].overtook_bytes;
  overtook_bytes = overtakes ? overtook_bytes + cost_bytes : 0;
}

// Bytes out of turn, for an unwanted response, are not charged: nothing bounds them, and the class would then wait for
// its next turn without a bound.
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

absl::Span<const size_t> ServiceOrder::classes() const {
  if (granting()) return turns_;
  const auto first = std::find_if(turns_.begin(), turns_.end(), [using_turns = UsingTurns()](size_t traffic_class) {
    return using_turns[traffic_class];
  });
  return absl::MakeSpan(turns_).first(std::min<size_t>(first - turns_.begin() + 1, turns_.size()));
}

bool ServiceOrder::HasTurn(size_t traffic_class) const {
  const ClassBits using_turns = UsingTurns();
  for (const size_t other : turns_) {
    if (other == traffic_class) break;
    if (using_turns[other]) return false;
  }
  return true;
}

Call* ServiceOrder::FirstReady(size_t traffic_class) const {
  return OldestIsDue(traffic_class) ? queue_.oldest(traffic_class) : queue_.first(traffic_class);
}

Call* ServiceOrder::NextReady() {
  if (queue_.empty()) return nullptr;
  const ClassBits ready = queue_.classes_with_turns();
  if (ready.none()) return queue_.first_unwanted();
  const ClassBits using_turns = UsingTurns();
  for (const size_t traffic_class : turns_) {
    if (using_turns[traffic_class]) return ready[traffic_class] ? FirstReady(traffic_class) : nullptr;
  }
  return nullptr;
}

Call* ServiceOrder::NextEarly() {
  if (sent_.early_classes().none()) return nullptr;
  const auto has_early = [this](size_t traffic_class) { return sent_.early_classes()[traffic_class]; };
  return sent_.first_early(*std::find_if(turns_.begin(), turns_.end(), has_early));
}

QueuedBlock* ServiceOrder::NextWaiting(size_t traffic_class) {
  constexpr int64_t kMostOvertaking = 3;
  QueuedBlock* const first = blocks_.first_waiting(traffic_class);
  if (first == nullptr || (!granting() && !HasTurn(traffic_class))) return nullptr;
  QueuedBlock* const oldest = blocks_.oldest_waiting(traffic_class);
  if (!granting()) return OldestIsDue(traffic_class) ? oldest : first;
  // Not a block that must wait for responses to be taken. Then smaller blocks would wait for it.
  const bool may_ask = oldest->request_rank != BlockOrder::kStocked &&
                       (oldest->request_rank < BlockOrder::kNotSmall ||
                        static_cast<double>(blocks_.ready_bytes() + sent_.expected_bytes()) <
                            static_cast<double>(options_.ready_bytes) / 4);
  const bool due = may_ask && classes_[traffic_class].overtook_requests >= kMostOvertaking;
  return due ? oldest : first;
}

QueuedBlock* ServiceOrder::NextWaiting() {
  for (const size_t traffic_class : classes()) {
    if (QueuedBlock* const block = NextWaiting(traffic_class)) return block;
  }
  return nullptr;
}

bool ServiceOrder::ReadyPrecedes(const QueuedBlock& block) const {
  const size_t traffic_class = block.traffic_class;
  for (const size_t other : turns_) {
    if (other == traffic_class) break;
    if (queue_.classes_with_turns()[other]) return true;
  }
  const Call* const ready = FirstReady(traffic_class);
  if (ready == nullptr) return false;
  return OldestIsDue(traffic_class) ? ready->block->id <= block.id : !(block.order() < ready->block->order());
}

void ServiceOrder::OnWeightsChanged() {
  double weights = 0;
  for (size_t i = 0; i < classes_.size(); ++i) weights += WeightOf(i);
  for (size_t i = 0; i < classes_.size(); ++i) classes_[i].share = WeightOf(i) / weights;
}

// Unscheduled grants whole messages, in the order in which they come. A class would wait seconds for what it got then.
void ServiceOrder::OnPolicyChanged() {
  for (ServiceClass& service_class : classes_) service_class.lead = 0;
  SortTurns();
}

}  // namespace sluice
