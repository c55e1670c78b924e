#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>

#include "sluice/time_point.h"

#include "absl/container/inlined_vector.h"
#include "lib/scheduling/block_queue.h"
#include "lib/scheduling/call_table.h"
#include "lib/scheduling/schedule_events.h"
#include "lib/scheduling/worker_share.h"

namespace sluice {

// The orders of calls: by turn, by age, in the order in which held calls leave, and in the order in which calls were
// added to GrantQueue. In the first three, blocks come first.
struct TurnKey {
  using type = std::tuple<BlockOrder, int, uint64_t>;
  type operator()(const Call& call) const { return {call.block->order(), call.rank, call.place}; }
};
struct AgeKey {
  using type = std::pair<BlockId, uint64_t>;
  type operator()(const Call& call) const { return {call.block->id, call.place}; }
};
struct HeldKey {
  using type = std::pair<BlockOrder, uint64_t>;
  type operator()(const Call& call) const { return {call.block->held_order(), call.place}; }
};
struct QueuedKey {
  using type = uint64_t;
  type operator()(const Call& call) const { return call.queued; }
};
template <class Hook, class Key>
using CallSet = boost::intrusive::set<Call, boost::intrusive::base_hook<Hook>, boost::intrusive::key_of_value<Key>,
                                      boost::intrusive::constant_time_size<false>>;

// Hooks for workers that have turns, ordered by their first call of each kind. Turn and Age: of one class.
struct TurnWorkersTag;
struct AgeWorkersTag;
struct UnwantedWorkersTag;
using TurnWorkersHook = boost::intrusive::set_base_hook<boost::intrusive::tag<TurnWorkersTag>>;
using AgeWorkersHook = boost::intrusive::set_base_hook<boost::intrusive::tag<AgeWorkersTag>>;
using UnwantedWorkersHook = boost::intrusive::set_base_hook<boost::intrusive::tag<UnwantedWorkersTag>>;
// Hooks for workers that owe bytes, and for workers that wait for room that they share with others of their kind: slow
// workers, and workers whose headers are large.
struct LapTag;
struct SlowTag;
struct LargeHeadersTag;
using LapHook = boost::intrusive::list_base_hook<boost::intrusive::tag<LapTag>>;
using SlowHook = boost::intrusive::list_base_hook<boost::intrusive::tag<SlowTag>>;
using LargeHeadersHook = boost::intrusive::list_base_hook<boost::intrusive::tag<LargeHeadersTag>>;

// The calls of one class at one worker that have, or wait for, their turn.
struct ClassCalls : TurnWorkersHook, AgeWorkersHook {
  // Kept by GrantQueue.
  CallSet<TurnHook, TurnKey> turns;
  CallSet<AgeHook, AgeKey> by_age;  // the same calls

  // Kept by QueuedWorkers. Calls in the phase kHeld, in the order in which they leave. They are let go one at a time,
  // so that the others need not be held again.
  CallSet<TurnHook, HeldKey> held;
  const Call* let_go = nullptr;  // the call that was let go and still waits, or null
};

// One worker of the schedule: its outstanding bytes, its share of the budget, and its calls that wait for the share.
struct QueuedWorker : UnwantedWorkersHook, LapHook, SlowHook, LargeHeadersHook {
  explicit QueuedWorker(size_t class_count) : classes(class_count) {}

  ClassCalls& Of(const Call& call) { return classes[call.block->traffic_class]; }

  uint32_t id = 0;
  int64_t users = 0;    // calls that have not ended
  bool bounded = true;  // false: its share has no bound, and it is always open
  bool open = true;     // it has less than its share outstanding, so requests and grants may go to it

  // In units of the budget. Outstanding keeps the charge and the counts, WorkerLaps the share and slow_bytes, LiveCalls
  // out_calls and ended_calls. Stalled bytes are in neither charged_bytes nor owed_bytes.
  WorkerShare share;
  int64_t charged_bytes = 0;  // charge of its calls, except early bytes
  int64_t owed_bytes = 0;     // outstanding bytes whose prefix has arrived, including early ones
  int64_t slow_bytes = 0;     // charged_bytes while it is slow
  // The headers of its last responses on the wire, as a mean; 0 before the first one. Kept by LiveCalls, like the next.
  double header_wire_bytes = 0;
  // How many responses must be ready in time before it gets early bytes again; 0: it may get them.
  int64_t early_debt = 0;
  int64_t out_calls = 0;    // sent, and not ended
  int64_t owing_calls = 0;  // bytes are granted and ready at the worker, stalled or not
  TimePoint owed_since;     // when calls began to owe, or when the worker last sent something
  int64_t pauses = 0;       // how often owed bytes came late
  int64_t stalled_calls = 0;
  int64_t ended_calls = 0;  // sent calls that have ended

  absl::InlinedVector<ClassCalls, 1> classes;
  // Kept by GrantQueue.
  CallSet<TurnHook, QueuedKey> unwanted;
  ClassBits turn_classes;  // that have turns

  // Kept by QueuedWorkers.
  int64_t held_calls = 0;  // calls in the phase kHeld
};

}  // namespace sluice
