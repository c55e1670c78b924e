#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>

#include "sluice/link_schedule.h"

#include "lib/scheduling/block_queue.h"
#include "lib/scheduling/call_table.h"

namespace sluice {

// The answers that are ready and wait for a grant, in the order of their turns. There is one for each schedule. Not
// thread-safe.
//
// An answer is new if nothing of it was granted since it became ready. New answers of the oldest block come first, and
// in a block the one that was ready first. A rest is what is left of an answer that was granted in part. Rests come
// after the new answers, so that small answers need not wait for a large one, and take turns. Between two turns of a
// rest, new answers get at most one budget, and each other rest one part. An answer that was held for kHoldLimit comes
// first.
class GrantQueue {
 public:
  // Servers on Kestrel abort the connection of a write that was blocked for 5 s.
  static constexpr std::chrono::seconds kHoldLimit{3};

  // The call must not be in the queue.
  void AddNew(Call& call, TimePoint now);
  void AddRest(Call& call, TimePoint now);
  void Remove(Call& call);  // may be in the queue or not

  // The call whose turn it is; null if the queue is empty.
  const Call* Next(TimePoint now, int64_t budget_bytes) const;
  Call* Next(TimePoint now, int64_t budget_bytes) {
    return const_cast<Call*>(std::as_const(*this).Next(now, budget_bytes));
  }

  // Takes a call out of the queue that had its turn and was granted bytes of this cost.
  void Take(Call& call, int64_t cost_bytes);

  // Whether a call that is not in the queue may leave with a grant now. It counts as new, after those in the queue.
  bool MayOvertake(int64_t budget_bytes) const { return blocks_.empty() && !RestIsDue(budget_bytes); }
  void Overtook(int64_t cost_bytes);

  bool empty() const { return held_.empty(); }

 private:
  struct IdKey {
    using type = BlockId;
    type operator()(const QueuedBlock& block) const { return block.id; }
  };

  void Add(Call& call, Call::Turn turn, TimePoint now);
  bool RestIsDue(int64_t budget_bytes) const;

  // Blocks with new answers, by age; the answers are in QueuedBlock::new_turns.
  boost::intrusive::set<QueuedBlock, boost::intrusive::base_hook<GrantHook>, boost::intrusive::key_of_value<IdKey>,
                        boost::intrusive::constant_time_size<false>>
      blocks_;
  TurnList rests_;
  int64_t rest_calls_ = 0;
  int64_t overtook_bytes_ = 0;  // since the last turn of a rest

  // All calls in the queue; the one that is held for longest comes first.
  boost::intrusive::list<Call, boost::intrusive::base_hook<HeldHook>, boost::intrusive::constant_time_size<false>>
      held_;
};

}  // namespace sluice
