#include "lib/scheduling/budget_control.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// A rate is comparable after calls have waited for this much of the link's time. That is about nine blocks of 64
// workers at 100 Mbit/s, and many blocks at higher rates.
constexpr nanoseconds kMeasure = milliseconds(500);
// A probe has more time to show a loss: if the buffer is nearly large enough, a loss takes an unlucky moment.
constexpr nanoseconds kProbeTrial = seconds(2);
// A loss may remain undetected for this long: a retransmission timeout and one sample.
constexpr nanoseconds kSettle = milliseconds(500);

// Time between trials. It grows with each trial that loses or does not help. It shrinks with each success, because an
// earlier loss may have had a temporary cause.
constexpr nanoseconds kMinInterval = seconds(2);
constexpr nanoseconds kFirstInterval = seconds(10);
constexpr nanoseconds kMaxInterval = std::chrono::minutes(10);
// A ceiling is tried again after this many intervals.
constexpr int64_t kCeilingIntervals = 6;

// CPU time that other programs take makes a measurement worse than the link is. So a step is given back, or followed by
// another step, only after several measurements. The first step is made at once.
constexpr int64_t kMeasurements = 4;

// A larger budget is not worth a loss if the link is this busy already, or if it gains less than this.
constexpr double kBusy = 0.95;
constexpr double kGain = 1.04;

constexpr double kBackOff = 0.5;
constexpr double kFirstGrowth = 2;
constexpr double kProbeGrowth = 1.25;
constexpr double kMinGrowth = 1.05;

// The buffer of a port overflows for all workers that send through it. If only one worker loses packets, it has a bad
// path, or pauses. Rejected: half of the active workers, which is one of two. If two workers overflow a port, both lose
// packets soon.
constexpr int64_t kMinLossyWorkers = 2;
// The lossy workers must also be this share of the responses. Among tens of thousands of responses a second, random
// losses of one in ten thousand affect several workers in each half second.
constexpr double kLossyShare = 0.001;

// Networks that reorder packets do so in a few of a thousand responses; a buffer that overflows loses far more. The
// sequential probability ratio test (Wald 1945) distinguishes these two shares of the responses.
constexpr double kOvertakenShare = 0.01;
constexpr double kLostShare = 0.03;
// Logarithms of the likelihood ratio at which the test ends. "Lost" is wrong in one of 400 tests.
constexpr double kLost = 6;
constexpr double kOvertaken = -2;

int64_t Scaled(int64_t bytes, double factor) {
  return static_cast<int64_t>(static_cast<double>(bytes) * factor);
}

double Seconds(nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

void Restart(BudgetState& state) {
  state.measured_time = nanoseconds(0);
  state.measured_bytes = 0;
}

void CountFrom(BudgetState& state, TimePoint when) {
  state.counted_since = when;
  state.answers = 0;
  state.out_of_order_losses = 0;
}

void Set(BudgetState& state, int64_t budget_bytes, TimePoint settle_until) {
  state.budget_bytes = budget_bytes;
  state.settle_until = settle_until;
  state.before_growth_bytes = 0;
  state.best_rate = 0;
  state.measurements = 0;
  CountFrom(state, settle_until);
  Restart(state);
}

// One worker is enough evidence only if no other worker is active.
bool Waited(const BudgetState& state, const BudgetObservation& seen) {
  if (seen.active_workers <= 1) return seen.lossy_workers > 0;
  return seen.lossy_workers >= kMinLossyWorkers &&
         static_cast<double>(seen.lossy_workers) >= kLossyShare * state.recent_answers;
}

// The worst worker does not count if others are active: its own path may always reorder packets.
bool TestFindsLosses(BudgetState& state, const BudgetObservation& seen) {
  state.answers += seen.answers;
  state.out_of_order_losses += seen.out_of_order_losses;
  const int64_t losses = state.out_of_order_losses - (seen.active_workers > 1 ? seen.worst_out_of_order_losses : 0);
  const double evidence = static_cast<double>(losses) * std::log(kLostShare / kOvertakenShare) -
                          static_cast<double>(state.answers) * (kLostShare - kOvertakenShare);
  if (evidence <= kOvertaken) CountFrom(state, seen.now);
  return evidence >= kLost;
}

void WaitLonger(BudgetState& state, TimePoint now) {
  state.growth_interval = std::clamp(2 * state.growth_interval, kFirstInterval, kMaxInterval);
  state.next_growth = now + state.growth_interval;
}

BudgetStep Hold(BudgetState state) {
  return {.state = state, .decision = BudgetDecision::kHold, .reason = {}};
}

// A trial that loses returns to the previous budget, at which nothing was lost. Any other loss means that the buffer
// has changed.
BudgetStep BackOff(const BudgetBounds& bounds, BudgetState state, TimePoint now) {
  const int64_t before = state.budget_bytes;
  const int64_t tried_from = state.before_growth_bytes;
  state.ceiling_bytes = before;
  state.ceiling_since = now;
  if (tried_from > 0) {
    WaitLonger(state, now);
    Set(state, tried_from, now + kSettle);
    return {state, BudgetDecision::kBackOff, "losses at the larger budget"};
  }
  state.growth_interval = kFirstInterval;
  state.next_growth = now + state.growth_interval;
  Set(state, std::max(bounds.floor_bytes, Scaled(before, kBackOff)), now + kSettle);
  if (state.budget_bytes == before) return Hold(state);
  return {state, BudgetDecision::kBackOff, "losses"};
}

// Returns the budget to try next, or the current one if no larger budget is worth a trial.
int64_t NextBudget(const BudgetBounds& bounds, BudgetState& state, TimePoint now) {
  const int64_t now_bytes = state.budget_bytes;
  if (state.ceiling_bytes == 0) return std::min(Scaled(now_bytes, kFirstGrowth), bounds.limit_bytes);
  if (now - state.ceiling_since >= kCeilingIntervals * state.growth_interval) state.ceiling_bytes = 0;
  int64_t next = std::min(Scaled(now_bytes, kProbeGrowth), bounds.limit_bytes);
  if (state.ceiling_bytes > 0 && next >= state.ceiling_bytes) next = now_bytes + (state.ceiling_bytes - now_bytes) / 2;
  const bool worth_it = next >= Scaled(now_bytes, kMinGrowth) || next == bounds.limit_bytes;
  return worth_it ? next : now_bytes;
}

}  // namespace

std::string_view BudgetDecisionName(BudgetDecision decision) {
  switch (decision) {
    case BudgetDecision::kHold:
      return "hold";
    case BudgetDecision::kGrow:
      return "grow";
    case BudgetDecision::kProbe:
      return "probe";
    case BudgetDecision::kBackOff:
      return "back_off";
    case BudgetDecision::kGiveBack:
      return "give_back";
  }
  return "";
}

absl::Status BudgetBounds::Validate() const {
  if (floor_bytes < 1) return absl::InvalidArgumentError(absl::StrCat("floor_bytes: ", floor_bytes, " is below 1"));
  if (limit_bytes < floor_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("limit_bytes: ", limit_bytes, " is below floor_bytes: ", floor_bytes));
  }
  const auto within = [this](absl::string_view field, int64_t bytes) {
    if (bytes >= floor_bytes && bytes <= limit_bytes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", bytes, " is outside of ", floor_bytes, " to ", limit_bytes));
  };
  absl::Status status = within("start_bytes", start_bytes);
  status.Update(within("reference_bytes", reference_bytes));
  if (!(capacity_bytes_per_second > 0)) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("capacity_bytes_per_second: ", capacity_bytes_per_second, " is not above 0")));
  }
  return status;
}

BudgetState StartBudget(const BudgetBounds& bounds, std::chrono::steady_clock::time_point now) {
  return {.budget_bytes = bounds.start_bytes,
          .settle_until = now,
          .next_growth = now,
          .growth_interval = kFirstInterval,
          .counted_since = now,
          .last_observation = now};
}

BudgetStep Decide(const BudgetBounds& bounds, const BudgetState& before, const BudgetObservation& seen) {
  BudgetState state = before;
  const nanoseconds elapsed = seen.now - before.last_observation;
  state.last_observation = seen.now;
  if (bounds.fixed()) return Hold(state);
  state.recent_answers =
      state.recent_answers * std::exp2(-Seconds(elapsed) / Seconds(kSettle)) + static_cast<double>(seen.answers);
  if (seen.now < state.settle_until) return Hold(state);
  if (Waited(state, seen) || TestFindsLosses(state, seen)) return BackOff(bounds, state, seen.now);
  state.measured_time += seen.backlogged_time;
  state.measured_bytes += seen.backlogged_bytes;
  const bool on_trial = state.before_growth_bytes > 0;
  if (state.measured_time < (on_trial && state.ceiling_bytes > 0 ? kProbeTrial : kMeasure)) return Hold(state);
  const double rate = static_cast<double>(state.measured_bytes) / Seconds(state.measured_time);
  Restart(state);
  state.best_rate = std::max(state.best_rate, rate);
  ++state.measurements;

  if (on_trial) {
    if (state.budget_bytes > bounds.reference_bytes && state.best_rate < kGain * state.before_growth_rate) {
      if (state.measurements < kMeasurements) return Hold(state);
      WaitLonger(state, seen.now);
      Set(state, state.before_growth_bytes, seen.now);
      return {state, BudgetDecision::kGiveBack, "the larger budget made the link no busier"};
    }
    state.before_growth_bytes = 0;
    if (state.budget_bytes > state.ceiling_bytes) state.ceiling_bytes = 0;
    if (state.ceiling_bytes > 0) {
      state.growth_interval = std::max(state.growth_interval / 2, kMinInterval);
      state.next_growth = seen.now + state.growth_interval;
    }
  }

  const bool wanted =
      state.budget_bytes < bounds.reference_bytes || state.best_rate < kBusy * bounds.capacity_bytes_per_second;
  const bool measured = state.measurements >= kMeasurements || state.budget_bytes <= bounds.start_bytes;
  if (!wanted || !measured || seen.now < state.next_growth) return Hold(state);
  const int64_t next = NextBudget(bounds, state, seen.now);
  if (next <= state.budget_bytes) return Hold(state);
  const bool lost_before = before.ceiling_bytes > 0;
  const int64_t from = state.budget_bytes;
  const double from_rate = state.best_rate;
  Set(state, next, seen.now);
  state.before_growth_bytes = from;
  state.before_growth_rate = from_rate;
  if (lost_before) return {state, BudgetDecision::kProbe, "nothing was lost for a while"};
  return {state, BudgetDecision::kGrow, "the link is not busy, and nothing was lost"};
}

}  // namespace sluice
