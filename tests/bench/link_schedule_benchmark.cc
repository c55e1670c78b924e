#include <cstdint>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "lib/scheduling/link_schedule.h"

namespace sluice {
namespace {

constexpr int64_t kSruBytes = 10'240;

ScheduleOptions OptionsOf(SchedulePolicy policy) {
  ScheduleOptions options;
  options.policy = policy;
  return options;
}

// A client that responds to every request at once, so that the measured time is the schedule's own.
class InstantWorkers {
 public:
  InstantWorkers(benchmark::State& state, const ScheduleOptions& options) : state_(state), schedule_(options) {}

  BlockId Submit(const std::vector<CallRequest>& calls, TimePoint deadline = TimePoint::max(),
                 size_t traffic_class = 0) {
    const absl::StatusOr<BlockId> block = schedule_.Submit(now_, calls, deadline, actions_, nullptr, traffic_class);
    if (!block.ok()) state_.SkipWithError(block.status().ToString().c_str());
    return block.value_or(0);
  }

  // Responds until no call is in flight and no slot is due.
  void Drain() {
    while (true) {
      while (!actions_.empty()) AnswerAll();
      if (schedule_.State().waiting_calls == 0) return;
      now_ = schedule_.NextTimer();
      schedule_.OnTimer(now_, actions_);
    }
  }

  // Finishes the one call in flight. The next call is then sent.
  void FinishOne() {
    const CallId call = actions_.back().call;
    actions_.clear();
    schedule_.OnFinished(++now_, call, CallEnd::kArrived, actions_);
    if (actions_.size() != 1) state_.SkipWithError("not one call in flight");
  }

  TimePoint now() const { return now_; }
  LinkSchedule& schedule() { return schedule_; }

 private:
  void AnswerAll() {
    answered_.swap(actions_);
    for (const Action& action : answered_) Answer(action);
    answered_.clear();
  }

  // Reports the events of a real client: the prefix, the granted bytes, the end.
  void Answer(const Action& action) {
    if (action.kind == Action::Kind::kSend) schedule_.OnReady(++now_, action.call, kSruBytes, actions_);
    if (action.bytes == 0) return;
    schedule_.OnReceived(++now_, action.call, kSruBytes, actions_);
    schedule_.OnFinished(now_, action.call, CallEnd::kArrived, actions_);
  }

  benchmark::State& state_;
  LinkSchedule schedule_;
  TimePoint now_;
  std::vector<Action> actions_;
  std::vector<Action> answered_;
};

// One block of N SRUs from submit to the last response. The result is the time of one item.
void BM_Block(benchmark::State& state, SchedulePolicy policy) {
  InstantWorkers link(state, OptionsOf(policy));
  std::vector<CallRequest> calls(state.range(0), {.response_bytes = kSruBytes});
  for (size_t i = 0; i < calls.size(); ++i) calls[i].worker = static_cast<uint32_t>(i) + 1;
  while (state.KeepRunning()) {
    link.Submit(calls);
    link.Drain();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK_CAPTURE(BM_Block, unscheduled, SchedulePolicy::kUnscheduled)->RangeMultiplier(10)->Range(10, 10'000);
BENCHMARK_CAPTURE(BM_Block, batches, SchedulePolicy::kBatches)->RangeMultiplier(10)->Range(10, 10'000);
BENCHMARK_CAPTURE(BM_Block, rolling, SchedulePolicy::kRolling)->RangeMultiplier(10)->Range(10, 10'000);
BENCHMARK_CAPTURE(BM_Block, grants, SchedulePolicy::kGrants)->RangeMultiplier(10)->Range(10, 10'000);

// Blocks of 16 SRUs in turns of the classes, with 65,536 calls of 10,000 workers. The result is the time of one call.
void BM_Classes(benchmark::State& state, SchedulePolicy policy) {
  constexpr int64_t kCalls = 65'536;
  constexpr int64_t kBlockCalls = 16;
  ScheduleOptions options = OptionsOf(policy);
  for (int64_t i = 0; state.range(0) > 1 && i < state.range(0); ++i) {
    options.classes.push_back({.name = "c" + std::to_string(i), .weight = static_cast<double>(i + 1)});
  }
  InstantWorkers link(state, options);
  uint32_t worker = 0;
  while (state.KeepRunning()) {
    for (int64_t block = 0; block < kCalls / kBlockCalls; ++block) {
      std::vector<CallRequest> calls(kBlockCalls, {.response_bytes = kSruBytes});
      for (CallRequest& call : calls) call.worker = 1 + worker++ % 10'000;
      link.Submit(calls, TimePoint::max(), static_cast<size_t>(block % state.range(0)));
    }
    link.Drain();
  }
  state.SetItemsProcessed(state.iterations() * kCalls);
}
BENCHMARK_CAPTURE(BM_Classes, grants, SchedulePolicy::kGrants)->Arg(1)->Arg(2)->Arg(16);
BENCHMARK_CAPTURE(BM_Classes, rolling, SchedulePolicy::kRolling)->Arg(1)->Arg(2)->Arg(16);

// Many clients with one call each: blocks of one call, each with a deadline of its own, are always waiting. An item
// submits one block and finishes another.
void BM_WaitingBlocks(benchmark::State& state) {
  ScheduleOptions options;
  options.policy = SchedulePolicy::kRolling;
  options.budget_bytes = 1;  // at most one call in flight
  InstantWorkers link(state, options);
  uint64_t random = 1;
  const auto submit = [&] {
    random = random * 6364136223846793005 + 1442695040888963407;
    link.Submit({{.response_bytes = kSruBytes}}, link.now() + std::chrono::hours(1 + (random >> 54)));
  };
  for (int64_t i = 0; i <= state.range(0); ++i) submit();
  while (state.KeepRunning()) {
    link.FinishOne();
    submit();
    benchmark::DoNotOptimize(link.schedule().NextTimer());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_WaitingBlocks)->RangeMultiplier(10)->Range(10, 10'000);

}  // namespace
}  // namespace sluice

BENCHMARK_MAIN();
