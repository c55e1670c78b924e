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

// Two budgets are comparable after calls have waited for this much of the link's time at each. That is about nine
// blocks of 64 workers at 100 Mbit/s, and many blocks at higher rates.
constexpr nanoseconds kMeasure = milliseconds(500);
// A budget that calls hardly wait for is measured for this long.
constexpr nanoseconds kUnbound = seconds(2);
constexpr nanoseconds kFew = milliseconds(300);
// Others that left this long ago may come back.
constexpr nanoseconds kRemember = std::chrono::minutes(1);
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
constexpr int64_t kTrialMeasurements = 2;  // the last smaller budget of a trial gets so many

constexpr double kBusy = 0.95;  // a link this busy needs no larger budget
// A larger budget must be worth this much more, and one that loses half as much may be worth this much less.
constexpr double kGain = 1.04;
constexpr double kAsGood = 0.97;
// Beside others the link is slower than this share of its capacity, and its rate changes by this share if they leave,
// or others come.
constexpr double kAlone = 0.85;
constexpr double kChanged = 0.25;
constexpr double kMoreThan = 1.1;
// A budget without timeouts that keeps the link this busy needs no comparison. A smaller one that soon carries less
// than the second share of what the larger one did was no cure.
constexpr double kBusyEnough = 0.75;
constexpr double kStarves = 0.6;
// Losses are more than those that no smaller budget avoided if they exceed kMore times their share of the workers' time
// by kFewLost. A few timeouts in a measurement are chance.
constexpr double kMore = 2;
constexpr double kFewLost = 0.15;

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
constexpr double kTimeoutSeconds = 0.2;  // Linux' least retransmission timeout

// Networks that reorder packets do so with a few of a thousand; a buffer that overflows loses far more. The sequential
// probability ratio test (Wald 1945) distinguishes these two shares of the packets. Rejected: shares of the responses.
// One overtaken packet in a hundred is one in most responses of a hundred packets.
constexpr double kOvertakenShare = 0.003;
constexpr double kLostFactor = 10.0 / 3;  // times that share
// Logarithms of the likelihood ratio at which the test ends. "Lost" is wrong in one of 400 tests.
constexpr double kLost = 6;
constexpr double kOvertaken = -2;

int64_t Scaled(int64_t bytes, double factor) {
  return static_cast<int64_t>(static_cast<double>(bytes) * factor);
}

double Seconds(nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

void CountFrom(BudgetState& state, TimePoint when) {
  state.counted_since = when;
  state.packets = 0;
  state.out_of_order_losses = 0;
}

void Set(BudgetState& state, int64_t budget_bytes, BudgetTrial trial, TimePoint settle_until) {
  state.budget_bytes = budget_bytes;
  state.trial = trial;
  state.settle_until = settle_until;
  state.window = state.measured = {};
  state.measurements = 0;
  CountFrom(state, settle_until);
}

bool Endures(const BudgetState& state, const BudgetObservation& seen) {
  return state.beside_others && seen.now < state.beside_until;
}

// One worker is enough evidence only if no other worker is active.
bool Waited(const BudgetState& state, const BudgetObservation& seen) {
  if (Endures(state, seen) && state.window.lost_share() < kMore * state.endured.lost_share() + kFewLost) return false;
  if (seen.active_workers <= 1) return seen.lossy_workers > 0;
  return seen.lossy_workers >= kMinLossyWorkers &&
         static_cast<double>(seen.lossy_workers) >= kLossyShare * state.recent_answers;
}

// The worst worker does not count if others are active: its own path may always reorder packets.
bool TestFindsLosses(BudgetState& state, const BudgetObservation& seen) {
  state.packets += seen.packets;
  state.out_of_order_losses += seen.out_of_order_losses;
  const int64_t losses = state.out_of_order_losses - (seen.active_workers > 1 ? seen.worst_out_of_order_losses : 0);
  const double usual = std::max(kOvertakenShare, Endures(state, seen) ? state.endured.out_of_order_share() : 0);
  const double evidence = static_cast<double>(losses) * std::log(kLostFactor) -
                          static_cast<double>(state.packets) * usual * (kLostFactor - 1);
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

// A trial that loses returns to the previous budget, at which nothing was lost.
BudgetStep GiveUpLarger(BudgetState state, TimePoint now) {
  state.ceiling_bytes = state.budget_bytes;
  state.ceiling_since = now;
  WaitLonger(state, now);
  Set(state, state.tried_from_bytes, BudgetTrial::kNone, now + kSettle);
  return {state, BudgetDecision::kBackOff, "losses at the larger budget"};
}

// Any other loss means that the buffer has changed, or that others use it. Smaller budgets tell.
BudgetStep TryHalf(const BudgetBounds& bounds, BudgetState state, TimePoint now) {
  const int64_t before = state.budget_bytes;
  const bool was_alone = state.beside_others && state.alone_bytes < before;
  const int64_t next = was_alone ? state.alone_bytes : Scaled(before, kBackOff);
  Set(state, std::max(bounds.floor_bytes, next), BudgetTrial::kSmaller, now + kSettle);
  if (state.budget_bytes < before) return {state, BudgetDecision::kBackOff, "losses"};
  state.trial = BudgetTrial::kAgain;  // at the floor there is no smaller budget to try
  return Hold(state);
}

BudgetStep TrySmaller(const BudgetBounds& bounds, BudgetState state, TimePoint now, int64_t lossy_workers) {
  state.tried_from_bytes = state.budget_bytes;
  state.tried_from = state.beside_others ? state.endured : state.window;
  // Their timeouts may belong to the measurement before this one.
  state.tried_from.rto_waits = std::max(state.tried_from.rto_waits, lossy_workers);
  state.best_bytes = 0;
  state.best = {};
  return TryHalf(bounds, state, now);
}

// Remembers the budget that was right beside others, if there were any.
void EndBeside(BudgetState& state, int64_t beside_bytes, TimePoint now) {
  if (!std::exchange(state.beside_others, false)) return;
  state.beside_bytes = now - state.beside_since < kMinInterval ? 0 : beside_bytes;
  state.beside_until = now + kRemember;
}

BudgetState KeepSmaller(BudgetState state, TimePoint now) {
  EndBeside(state, state.tried_from_bytes, now);
  state.ceiling_bytes = state.tried_from_bytes;
  state.ceiling_since = now;
  state.growth_interval = kFirstInterval;
  state.next_growth = now + state.growth_interval;
  state.trial = BudgetTrial::kNone;
  return state;
}

// Rejected: to count packets out of order, too. If a bulk flow has just lost packets, it makes others lose fewer, and
// the budget then starves beside it.
bool LosesLess(const BudgetWindow& smaller, const BudgetWindow& larger) {
  return larger.rto_waits > 0 && smaller.lost_share() <= larger.lost_share() / 2;
}

// Returns whether a smaller budget is worth `share` of the larger one. If clients ask again as soon as they have their
// responses, they wait longer for the smaller budget and yet receive as much.
bool IsWorth(const BudgetWindow& smaller, double share, const BudgetWindow& larger) {
  const double kept = (1 - smaller.lost_share()) / share;
  const double needed = 1 - larger.lost_share();
  return smaller.rate() * kept >= larger.rate() * needed ||
         smaller.received_rate() * kept >= larger.received_rate() * needed;
}

// A smaller budget stays if it has half of the timeouts, and is worth as much.
bool AvoidsTimeouts(const BudgetWindow& smaller, const BudgetWindow& larger) {
  return LosesLess(smaller, larger) && IsWorth(smaller, kAsGood, larger);
}

// Some of the losses that TCP repairs end in a timeout. Those are too rare to be compared, and make the longest waits.
bool AvoidsRepairs(const BudgetWindow& smaller, const BudgetWindow& larger) {
  return smaller.out_of_order_share() <= larger.out_of_order_share() / 2 && smaller.rto_waits <= larger.rto_waits &&
         IsWorth(smaller, kAsGood, larger);
}

// If a smaller budget still loses, the next one is tried at once: the port of a stated buffer may hold a quarter of it.
bool NeedsLess(const BudgetBounds& bounds, const BudgetState& state) {
  return state.trial == BudgetTrial::kSmaller && state.window.rto_waits >= kMinLossyWorkers &&
         state.budget_bytes > bounds.floor_bytes;
}

BudgetStep JudgeSmaller(const BudgetBounds& bounds, BudgetState state, TimePoint now) {
  if (state.window.worth() > state.best.worth()) {
    state.best = state.window;
    state.best_bytes = state.budget_bytes;
  }
  // The budget from before others came needs no reason but that it carries as much.
  const bool was_alone = state.beside_others && state.budget_bytes >= state.alone_bytes;
  const bool keeps =
      was_alone ? IsWorth(state.window, kAsGood, state.tried_from) : AvoidsTimeouts(state.window, state.tried_from);
  const bool cures = state.window.rto_waits < kMinLossyWorkers && state.tried_from.rto_waits > 0 &&
                     state.window.rate() >= kBusyEnough * bounds.capacity_bytes_per_second;
  if (keeps || cures) return Hold(KeepSmaller(state, now));
  if (NeedsLess(bounds, state)) return TryHalf(bounds, state, now);
  // Packets that were lost at a larger budget may be lost again, and time out for up to a second. So timeouts count
  // against the last budget only in a second measurement.
  if (state.window.rto_waits > 0 && ++state.measurements < kTrialMeasurements) {
    state.window = {};
    return Hold(state);
  }
  Set(state, state.tried_from_bytes, BudgetTrial::kAgain, now + kSettle);
  return {state, BudgetDecision::kGiveBack, "the smaller budget carries less"};
}

// The larger budget was measured again, since the traffic of others may have changed between the two.
BudgetStep JudgeAgain(BudgetState state, TimePoint now) {
  const bool avoids = AvoidsTimeouts(state.best, state.window) ||
                      (AvoidsRepairs(state.best, state.window) && AvoidsRepairs(state.best, state.tried_from));
  if (state.best_bytes > 0 && avoids) {
    Set(state, state.best_bytes, BudgetTrial::kNone, now + kSettle);
    return {KeepSmaller(state, now), BudgetDecision::kBackOff, "losses"};
  }
  if (std::exchange(state.beside_others, true)) {
    WaitLonger(state, now);
  } else {
    state.alone_bytes = state.budget_bytes;
    state.beside_since = now;
    state.growth_interval = kFirstInterval;
    state.next_growth = now;
  }
  state.beside_until = now + state.growth_interval;
  state.endured = state.window;
  state.ceiling_bytes = 0;
  state.trial = BudgetTrial::kNone;
  return Hold(state);
}

// Others that come back meet the budget that was right for them before.
BudgetStep OthersAreBack(BudgetState state, TimePoint now) {
  state.alone_bytes = state.budget_bytes;
  state.beside_others = true;
  state.beside_since = now;
  state.beside_until = now + kFirstInterval;
  Set(state, state.beside_bytes, BudgetTrial::kNone, now + kSettle);
  return {state, BudgetDecision::kGrow, "others take a part of the link again"};
}

// If the link receives nearly all that it can carry, the others have left, or a larger budget has taken the port from
// them: responses with a share s of a full port that double their bytes there get the share 2 s / (1 + s).
bool HaveOthersLeft(const BudgetBounds& bounds, const BudgetState& state) {
  if (!state.beside_others || state.budget_bytes <= state.alone_bytes || state.window.elapsed < kFew) return false;
  const bool growing = state.trial == BudgetTrial::kLarger;
  const BudgetWindow& before = growing ? state.tried_from : state.endured;
  const double was = before.received_rate() / bounds.capacity_bytes_per_second;
  const double most = kMoreThan * (growing ? kFirstGrowth * was / (1 + was) : was);
  return state.window.received_rate() > std::max(kAlone, most) * bounds.capacity_bytes_per_second;
}

BudgetStep OthersLeft(BudgetState state, TimePoint now) {
  EndBeside(state, state.trial == BudgetTrial::kLarger ? state.tried_from_bytes : state.budget_bytes, now);
  const int64_t before = state.budget_bytes;
  Set(state, state.alone_bytes, BudgetTrial::kNone, now + kSettle);
  state.ceiling_bytes = 0;
  state.next_growth = now + kFirstInterval;
  if (state.budget_bytes == before) return Hold(state);
  return {state, BudgetDecision::kBackOff, "the link is ours alone"};
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

// The budget may exceed a stated buffer only beside others. Rejected: it may also if the link is less than 80 % busy.
// Late workers make it idle, too, and the larger budget then overflows the port.
bool WantsMore(const BudgetBounds& bounds, const BudgetState& state, const BudgetWindow& window) {
  const bool binds = window.backlogged_time >= window.elapsed / 8 || !state.beside_others;
  const bool measured =
      state.measurements >= kMeasurements || state.budget_bytes <= bounds.start_bytes || state.beside_others;
  if (!binds || !measured) return false;
  if (state.budget_bytes < bounds.reference_bytes) return true;
  const double busy_share = state.beside_others ? kAlone : kBusy;
  return (state.beside_others || !bounds.buffer_known) &&
         state.measured.rate() < busy_share * bounds.capacity_bytes_per_second;
}

// `window` is the last measurement at the budget.
BudgetStep Grow(const BudgetBounds& bounds, BudgetState state, const BudgetWindow& window, TimePoint now) {
  const bool starves = window.rate() < kStarves * state.tried_from.rate();
  if (starves && state.budget_bytes < bounds.reference_bytes && now - state.ceiling_since >= kMinInterval) {
    state.ceiling_bytes = 0;
    Set(state, bounds.reference_bytes, BudgetTrial::kNone, now);
    return {state, BudgetDecision::kProbe, "the smaller budget carries too little"};
  }
  if (now < state.next_growth || !WantsMore(bounds, state, window)) return Hold(state);
  const bool probes = state.ceiling_bytes > 0;
  const int64_t next = NextBudget(bounds, state, now);
  if (next <= state.budget_bytes) return Hold(state);
  state.tried_from_bytes = state.budget_bytes;
  state.tried_from = state.measured;
  Set(state, next, BudgetTrial::kLarger, now);
  if (probes) return {state, BudgetDecision::kProbe, "nothing was lost for a while"};
  if (state.beside_others) return {state, BudgetDecision::kGrow, "others take a part of the link"};
  return {state, BudgetDecision::kGrow, "the link is not busy, and nothing was lost"};
}

BudgetStep JudgeLarger(const BudgetBounds& bounds, BudgetState state, const BudgetWindow& window, TimePoint now) {
  const bool better = state.measured.worth() >= kGain * state.tried_from.worth();
  if (state.budget_bytes > bounds.reference_bytes && !better) {
    if (state.measurements < kMeasurements) return Hold(state);
    WaitLonger(state, now);
    Set(state, state.tried_from_bytes, BudgetTrial::kNone, now);
    return {state, BudgetDecision::kGiveBack, "the larger budget made the link no busier"};
  }
  state.trial = BudgetTrial::kNone;
  if (state.beside_others) state.endured = window;
  if (state.budget_bytes > state.ceiling_bytes) state.ceiling_bytes = 0;
  if (state.ceiling_bytes > 0) {
    state.growth_interval = std::max(state.growth_interval / 2, kMinInterval);
    state.next_growth = now + state.growth_interval;
  }
  return Grow(bounds, state, window, now);
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
          .counted_since = now};
}

void BudgetWindow::Add(const BudgetObservation& seen) {
  elapsed += seen.elapsed;
  received_bytes += seen.received_bytes;
  backlogged_time += seen.backlogged_time;
  backlogged_bytes += seen.backlogged_bytes;
  worker_seconds += static_cast<double>(seen.active_workers) * Seconds(seen.elapsed);
  rto_waits += seen.rto_waits;
  packets += seen.packets;
  out_of_order_losses += seen.out_of_order_losses;
}

bool BudgetWindow::long_enough() const {
  return backlogged_time >= kMeasure || (elapsed >= kUnbound && backlogged_time < elapsed / 8 && received_bytes > 0);
}

double BudgetWindow::rate() const {
  if (backlogged_time < std::min(kMeasure, elapsed / 8)) return received_rate();
  return backlogged_time.count() > 0 ? static_cast<double>(backlogged_bytes) / Seconds(backlogged_time) : 0;
}

double BudgetWindow::received_rate() const {
  return elapsed.count() > 0 ? static_cast<double>(received_bytes) / Seconds(elapsed) : 0;
}

double BudgetWindow::lost_share() const {
  return worker_seconds > 0 ? std::min(1.0, static_cast<double>(rto_waits) * kTimeoutSeconds / worker_seconds) : 0;
}

double BudgetWindow::out_of_order_share() const {
  return packets > 0 ? static_cast<double>(out_of_order_losses) / static_cast<double>(packets) : 0;
}

BudgetStep Decide(const BudgetBounds& bounds, const BudgetState& before, const BudgetObservation& seen) {
  BudgetState state = before;
  if (bounds.fixed()) return Hold(state);
  state.recent_answers =
      state.recent_answers * std::exp2(-Seconds(seen.elapsed) / Seconds(kSettle)) + static_cast<double>(seen.answers);
  if (seen.now - seen.elapsed < state.settle_until) return Hold(state);
  state.window.Add(seen);
  if (HaveOthersLeft(bounds, state)) return OthersLeft(state, seen.now);
  if (state.trial == BudgetTrial::kNone || state.trial == BudgetTrial::kLarger) {
    const bool lost = Waited(state, seen) || TestFindsLosses(state, seen);
    if (lost && state.trial == BudgetTrial::kLarger) return GiveUpLarger(state, seen.now);
    const bool known = !state.beside_others && seen.now < state.beside_until;
    if (lost && known && state.beside_bytes > state.budget_bytes) return OthersAreBack(state, seen.now);
    if (lost) return TrySmaller(bounds, state, seen.now, seen.lossy_workers);
  }
  if (NeedsLess(bounds, state) && !state.window.long_enough()) return TryHalf(bounds, state, seen.now);
  const bool probing = state.trial == BudgetTrial::kLarger && state.ceiling_bytes > 0;
  if (probing ? state.window.backlogged_time < kProbeTrial : !state.window.long_enough()) return Hold(state);
  if (state.trial == BudgetTrial::kSmaller) return JudgeSmaller(bounds, state, seen.now);
  if (state.trial == BudgetTrial::kAgain) return JudgeAgain(state, seen.now);
  const BudgetWindow window = std::exchange(state.window, {});
  if (window.worth() > state.measured.worth()) state.measured = window;
  ++state.measurements;
  if (state.trial == BudgetTrial::kLarger) return JudgeLarger(bounds, state, window, seen.now);
  const bool changed = state.beside_others && std::abs(window.rate() / state.endured.rate() - 1) > kChanged;
  if (changed) state.beside_until = seen.now;
  return Grow(bounds, state, window, seen.now);
}

}  // namespace sluice
