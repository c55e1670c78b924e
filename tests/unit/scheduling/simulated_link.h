#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>

#include "lib/scheduling/budget_control.h"

namespace sluice::testing {

using std::chrono_literals::operator""ms;

inline constexpr double kCapacity = 12.5e6;  // 100 Mbit/s
inline constexpr int64_t kKiB = 1024;

// Bounds for an unknown buffer.
inline BudgetBounds Unknown() {
  return {.floor_bytes = 12 * kKiB,
          .start_bytes = 16 * kKiB,
          .reference_bytes = 16 * kKiB,
          .limit_bytes = 4096 * kKiB,
          .capacity_bytes_per_second = kCapacity};
}

inline BudgetBounds Known(int64_t buffer_bytes) {
  return {.floor_bytes = 12 * kKiB,
          .start_bytes = buffer_bytes,
          .reference_bytes = buffer_bytes,
          .limit_bytes = buffer_bytes,
          .capacity_bytes_per_second = kCapacity};
}

// A link in a loop. Its port drops packets if the budget exceeds the buffer. A larger budget makes it busier: with b
// bytes in flight, b bytes arrive in each round trip plus their time on the link.
class SimulatedLink {
 public:
  explicit SimulatedLink(const BudgetBounds& bounds) : bounds_(bounds), state_(StartBudget(bounds, now_)) {}

  int64_t buffer_bytes = 32 * kKiB;
  int64_t pipe_bytes = 3 * kKiB / 2;  // bytes that the link sends in a round trip
  double most_share = 1;              // share of the link that workers can use
  int64_t workers = 64;
  int64_t bad_workers = 0;            // workers that lose packets at any budget
  double backlogged = 1;              // share of the time in which calls wait for the budget
  double noise = 0;                   // share of a rate that a busy host takes away
  int64_t overtaken_of_thousand = 0;  // responses with packets out of order although nothing is lost
  int64_t decisions[5] = {};

  BudgetDecision Step(std::chrono::nanoseconds elapsed = 100ms) {
    now_ += elapsed;
    const double seconds = std::chrono::duration<double>(elapsed).count();
    const double rate = kCapacity * Share(state_.budget_bytes) * (1 - noise * uniform_(random_));
    const auto answers = static_cast<int64_t>(rate * seconds / 11'000);
    BudgetObservation seen{.now = now_, .active_workers = workers};
    seen.backlogged_time = std::chrono::duration_cast<std::chrono::nanoseconds>(backlogged * elapsed);
    seen.backlogged_bytes = std::llround(backlogged * rate * seconds);
    seen.answers = std::llround(backlogged * static_cast<double>(answers));
    seen.out_of_order_losses = seen.answers * overtaken_of_thousand / 1000;
    seen.lossy_workers = bad_workers;
    if (backlogged > 0 && state_.budget_bytes > buffer_bytes) {
      seen.lossy_workers = std::min<int64_t>(workers, 2);
      seen.backlogged_bytes /= 2;
      ++lossy_steps_;
    }
    const BudgetStep step = Decide(bounds_, state_, seen);
    EXPECT_EQ(step.decision == BudgetDecision::kHold, step.state.budget_bytes == state_.budget_bytes);
    EXPECT_EQ(step.reason.empty(), step.decision == BudgetDecision::kHold);
    EXPECT_GE(step.state.budget_bytes, bounds_.floor_bytes);
    EXPECT_LE(step.state.budget_bytes, bounds_.limit_bytes);
    state_ = step.state;
    ++decisions[static_cast<int>(step.decision)];
    return step.decision;
  }

  // Returns the share of the link that a budget uses.
  double Share(int64_t budget_bytes) const {
    return std::min(most_share, static_cast<double>(budget_bytes) / static_cast<double>(budget_bytes + pipe_bytes));
  }

  void Run(std::chrono::nanoseconds time) {
    for (const auto end = now_ + time; now_ < end;) Step();
  }

  // Returns the steps with a loss since the last call.
  int64_t TakeLossySteps() { return std::exchange(lossy_steps_, 0); }
  int64_t budget() const { return state_.budget_bytes; }
  const BudgetState& state() const { return state_; }
  void Seed(uint32_t seed) { random_.seed(seed); }

 private:
  const BudgetBounds bounds_;
  std::chrono::steady_clock::time_point now_{};
  BudgetState state_;
  int64_t lossy_steps_ = 0;
  std::mt19937 random_{1};
  std::uniform_real_distribution<double> uniform_{0, 1};
};

}  // namespace sluice::testing
