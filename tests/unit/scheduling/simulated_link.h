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
  int64_t overtaken_of_thousand = 0;  // packets out of order although nothing is lost
  bool repairs = false;               // TCP repairs the losses in the port without timeouts, and they cost no goodput
  std::chrono::nanoseconds echo{0};   // timeouts go on for this long: lost packets are lost again
  // Bytes that a bulk flow keeps in the port. It takes its part of the link, and any budget loses packets.
  int64_t neighbour_bytes = 0;
  int64_t decisions[5] = {};

  BudgetDecision Step(std::chrono::nanoseconds elapsed = 100ms) {
    now_ += elapsed;
    const double seconds = std::chrono::duration<double>(elapsed).count();
    const double rate = kCapacity * Share(state_.budget_bytes) * (1 - noise * uniform_(random_));
    const auto answers = static_cast<int64_t>(rate * seconds / 11'000);
    BudgetObservation seen{.now = now_, .elapsed = elapsed, .active_workers = workers};
    seen.backlogged_time = std::chrono::duration_cast<std::chrono::nanoseconds>(backlogged * elapsed);
    seen.backlogged_bytes = std::llround(backlogged * rate * seconds);
    seen.answers = std::llround(backlogged * static_cast<double>(answers));
    seen.packets = seen.answers * 8;
    seen.received_bytes = seen.backlogged_bytes;
    seen.out_of_order_losses = seen.packets * overtaken_of_thousand / 1000;
    seen.lossy_workers = seen.rto_waits = neighbour_bytes > 0 ? 2 : bad_workers;
    const bool overflows = backlogged > 0 && neighbour_bytes == 0 && state_.budget_bytes > buffer_bytes;
    if (overflows) echo_until_ = now_ + echo;
    if (!overflows && now_ < echo_until_) {
      seen.lossy_workers = seen.rto_waits = std::min<int64_t>(workers, 2);
      seen.received_bytes = seen.backlogged_bytes /= 2;
    }
    if (overflows) {
      if (repairs) {
        seen.out_of_order_losses = seen.packets / 20;
      } else {
        seen.lossy_workers = seen.rto_waits = std::min<int64_t>(workers, 2);
        seen.received_bytes = seen.backlogged_bytes /= 2;
      }
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
    const auto budget = static_cast<double>(budget_bytes);
    return std::min(most_share, budget / static_cast<double>(budget_bytes + pipe_bytes)) * budget /
           static_cast<double>(budget_bytes + neighbour_bytes);
  }

  void Run(std::chrono::nanoseconds time) {
    for (const auto end = now_ + time; now_ < end;) Step();
  }

  // Nobody has a call for this long, so nobody looks.
  void Idle(std::chrono::nanoseconds time) { now_ += time; }

  // Returns the steps with a loss since the last call.
  int64_t TakeLossySteps() { return std::exchange(lossy_steps_, 0); }
  int64_t budget() const { return state_.budget_bytes; }
  const BudgetState& state() const { return state_; }
  void Seed(uint32_t seed) { random_.seed(seed); }

 private:
  const BudgetBounds bounds_;
  std::chrono::steady_clock::time_point now_{};
  std::chrono::steady_clock::time_point echo_until_{};
  BudgetState state_;
  int64_t lossy_steps_ = 0;
  std::mt19937 random_{1};
  std::uniform_real_distribution<double> uniform_{0, 1};
};

// Returns a link whose budget may be as large as the buffer of its port, and begins so.
inline SimulatedLink LinkWithBuffer(int64_t buffer_bytes) {
  SimulatedLink link(Known(buffer_bytes));
  link.buffer_bytes = buffer_bytes;
  return link;
}

}  // namespace sluice::testing
