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

// The orders of calls: by turn, by age, and by the time for which they are held. By turn and by age, blocks come first.
struct TurnKey {
  using type = std::tuple<BlockOrder, int, uint64_t>;
  type operator()(const Call& call) const { return {call.block->order(), call.rank, call.place}; }
};
struct AgeKey {
  using type = std::pair<BlockAge, uint64_t>;
  type operator()(const Call& call) const { return {call.block->age(), call.place}; }
};
struct HeldKey {
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
struct HeldWorkersTag;
using TurnWorkersHook = boost::intrusive::set_base_hook<boost::intrusive::tag<TurnWorkersTag>>;
using AgeWorkersHook = boost::intrusive::set_base_hook<boost::intrusive::tag<AgeWorkersTag>>;
using UnwantedWorkersHook = boost::intrusive::set_base_hook<boost::intrusive::tag<UnwantedWorkersTag>>;
using HeldWorkersHook = boost::intrusive::set_base_hook<boost::intrusive::tag<HeldWorkersTag>>;
// Hook for workers that owe bytes.
struct LapTag;
using LapHook = boost::intrusive::list_base_hook<boost::intrusive::tag<LapTag>>;

// The calls of one class at one worker that have, or wait for, their turn.
struct ClassCalls : TurnWorkersHook, AgeWorkersHook {
  // Kept by GrantQueue.
  CallSet<TurnHook, TurnKey> turns;
  CallSet<AgeHook, AgeKey> by_age;  // the same calls

  // Kept by QueuedWorkers. Calls in the phase kHeld, in the order in which they leave. They are let go one at a time,
  // so that the others need not be held again.
  CallSet<TurnHook, TurnKey> held;
  const Call* let_go = nullptr;  // the call that was let go and still waits, or null
  int64_t ready_calls = 0;       // calls in the phase kReady
};

// One worker of the schedule: its outstanding bytes, its share of the budget, and its calls that wait for the share.
struct QueuedWorker : UnwantedWorkersHook, HeldWorkersHook, LapHook {
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
  int64_t out_calls = 0;      // sent, and not ended
  int64_t owing_calls = 0;    // bytes are granted and ready at the worker, stalled or not
  TimePoint owed_since;       // when calls began to owe, or when the worker last sent something
  int64_t pauses = 0;         // how often owed bytes came late
  int64_t stalled_calls = 0;
  int64_t ended_calls = 0;  // sent calls that have ended

  absl::InlinedVector<ClassCalls, 1> classes;
  // Kept by GrantQueue.
  CallSet<TurnHook, HeldKey> unwanted;
  CallSet<HeldHook, HeldKey> all;

  // Kept by QueuedWorkers.
  int64_t held_calls = 0;  // calls in the phase kHeld
};

}  // namespace sluice
