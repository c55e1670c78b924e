#include "tools/sluice_calibrate/timer_lateness.h"

#include <chrono>
#include <deque>
#include <random>
#include <utility>  // Boost 1.74 misses it in C++20
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTimers = 2000;
constexpr int kTimersBetweenChecks = 50;
constexpr int kMinUs = 100;
constexpr int kMaxUs = 1000;

// Timers with this spacing show the times at which any timer can fire. Together they cover several ticks of the slowest
// kernel (100 Hz).
constexpr auto kSpacing = std::chrono::microseconds(10);
constexpr int kCloseTimers = 5000;
constexpr auto kHeadStart = std::chrono::milliseconds(20);

absl::Duration OneTimer(boost::asio::io_context& context, std::chrono::microseconds delay) {
  boost::asio::steady_timer timer(context);
  const Clock::time_point due = Clock::now() + delay;
  absl::Duration lateness;
  timer.expires_at(due);
  timer.async_wait([&](const boost::system::error_code&) { lateness = absl::FromChrono(Clock::now() - due); });
  context.restart();
  context.run();
  return lateness;
}

// Returns the times between consecutive firing times that are more than one handler apart.
std::vector<absl::Duration> StepsOf(const std::vector<Clock::time_point>& fired) {
  std::vector<absl::Duration> steps;
  Clock::time_point last = fired.front();
  for (const Clock::time_point time : fired) {
    if (time - last < kSpacing / 2) continue;
    steps.push_back(absl::FromChrono(time - last));
    last = time;
  }
  return steps;
}

std::vector<absl::Duration> CloseTimers(boost::asio::io_context& context) {
  std::deque<boost::asio::steady_timer> timers;
  std::vector<Clock::time_point> fired;
  fired.reserve(kCloseTimers);
  const Clock::time_point first = Clock::now() + kHeadStart;
  for (int i = 0; i < kCloseTimers; ++i) {
    timers.emplace_back(context, first + i * kSpacing);
    timers.back().async_wait([&fired](const boost::system::error_code&) { fired.push_back(Clock::now()); });
  }
  context.restart();
  context.run();
  return StepsOf(fired);
}

}  // namespace

absl::StatusOr<TimerSamples> MeasureTimerLateness(const std::function<bool()>& interrupted) {
  boost::asio::io_context context{1};
  std::minstd_rand random(1);  // any seed works; random delays do not fall in step with a tick
  std::uniform_int_distribution<int> delay_us(kMinUs, kMaxUs);
  TimerSamples samples;
  for (int i = 0; i < kTimers; ++i) {
    if (i % kTimersBetweenChecks == 0 && interrupted()) return absl::CancelledError("interrupted");
    samples.lateness.push_back(OneTimer(context, std::chrono::microseconds(delay_us(random))));
  }
  samples.steps = CloseTimers(context);
  return samples;
}

}  // namespace sluice
