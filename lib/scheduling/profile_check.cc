#include "lib/scheduling/profile_check.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kWindow = std::chrono::milliseconds(500);
constexpr std::chrono::minutes kBestFor{10};
// Bytes that came before calls waited may be read while they wait. In windows with a tenth of other time this is
// negligible.
constexpr double kBacklogged = 0.9;
constexpr int kEnough = 10;
constexpr double kTooFast = 1.1;
constexpr double kTooSlow = 0.7;
constexpr double kRttFactor = 3;
// The smallest round trip of TCP leaves out the time of the worker's process and the time of a full packet.
constexpr absl::Duration kLeastRtt = absl::Microseconds(100);

// A link with little room in its port is idle for a round trip for each budget.
double ExpectedRate(const LinkProfile& profile, int64_t budget_bytes, absl::Duration rtt) {
  const auto budget = static_cast<double>(budget_bytes);
  return budget / (absl::ToDoubleSeconds(rtt) + budget / profile.capacity_bytes_per_second);
}

}  // namespace

std::vector<ProfileMismatch> ProfileCheck::Observe(const LinkProfile& profile, const BudgetObservation& seen,
                                                   int64_t budget_bytes, std::optional<absl::Duration> min_rtt) {
  if (profile != std::exchange(profile_, profile)) capacity_ = rtt_ = Fact();
  std::vector<ProfileMismatch> found;
  StartPeriod(seen.now);
  if (min_rtt.has_value()) {
    best_.rtt = std::min(best_.rtt, *min_rtt);
    const absl::Duration told = profile.propagation_rtt;
    const absl::Duration measured = std::max(rtt(), kLeastRtt);
    if (Judge(rtt_, told > kRttFactor * measured || told < measured / kRttFactor)) {
      found.push_back({"rtt", absl::ToDoubleSeconds(told), absl::ToDoubleSeconds(rtt())});
    }
  }
  if (const std::optional<double> rate = CloseWindow(seen)) {
    const double told = profile.capacity_bytes_per_second;
    const absl::Duration measured = rtt() < absl::InfiniteDuration() ? rtt() : absl::ZeroDuration();
    const double expected = ExpectedRate(profile, budget_bytes, std::max(profile.propagation_rtt, measured));
    const bool too_slow = !lost_in_last_ && *rate < kTooSlow * expected;
    if (Judge(capacity_, *rate > kTooFast * told || too_slow)) found.push_back({"capacity", told, *rate});
  }
  return found;
}

// Returns true if the fact is contradicted from now on, for the first time.
bool ProfileCheck::Judge(Fact& fact, bool contradicts) {
  fact.others = contradicts == fact.contradicted ? 0 : fact.others + 1;
  if (fact.others < kEnough) return false;
  fact.contradicted = contradicts;
  fact.others = 0;
  return contradicts && !std::exchange(fact.reported, true);
}

// Adds to the window. Returns its rate if it is complete, and begins the next one.
std::optional<double> ProfileCheck::CloseWindow(const BudgetObservation& seen) {
  if (seen.elapsed <= nanoseconds(0) || seen.backlogged_time < kBacklogged * seen.elapsed) {
    window_ = Window();
    last_rate_ = 0;
    return std::nullopt;
  }
  window_.time += seen.backlogged_time;
  window_.bytes += seen.backlogged_bytes;
  window_.lost = window_.lost || seen.rto_waits > 0 || seen.out_of_order_losses > 0;
  if (window_.time < kWindow) return std::nullopt;
  const double rate = static_cast<double>(window_.bytes) / std::chrono::duration<double>(window_.time).count();
  lost_in_last_ = window_.lost;
  window_ = Window();
  // A single window may contain bytes that waited while the host stood still.
  best_.rate = std::max(best_.rate, std::min(rate, std::exchange(last_rate_, rate)));
  return rate;
}

void ProfileCheck::StartPeriod(TimePoint now) {
  if (now - best_since_ < kBestFor) return;
  best_before_ = std::exchange(best_, Best());
  best_since_ = now;
}

}  // namespace sluice
